// harm does what a tracer can disturb, and checks the result. It prints "ok" at the end, or what went wrong.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static double cpu(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static volatile unsigned long sum;

__attribute__((noinline)) static void work(void)
{
	for (int i = 0; i < 20000; i++)
		sum += i * i;
}

static atomic_ulong received, ones, children, timers;
static atomic_int over;

static void queued(int sig, siginfo_t *info, void *context)
{
	if (info->si_code == SI_QUEUE && info->si_value.sival_int == 42)
		received++;
}

static void one(int sig) { ones++; }
static void child(int sig) { children++; }

static void timer(int sig, siginfo_t *info, void *context) { timers += 1 + info->si_overrun; }

static void *works(void *arg)
{
	while (!over)
		work();
	return NULL;
}

static void handle(int sig, void (*fn)(int, siginfo_t *, void *))
{
	struct sigaction act = {.sa_sigaction = fn, .sa_flags = SA_SIGINFO | SA_RESTART};
	if (sigaction(sig, &act, NULL))
		fail("sigaction");
}

// Queued signals, single ones that are awaited, those of ended children, and a timer's at 1 kHz: none is lost.
static void signals(double seconds)
{
	handle(SIGRTMIN, queued);
	handle(SIGRTMIN + 1, timer);
	signal(SIGUSR1, one);
	signal(SIGCHLD, child);
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
	timer_t id;
	if (timer_create(CLOCK_MONOTONIC, &event, &id))
		fail("timer_create");
	struct itimerspec every = {{0, 1000000}, {0, 1000000}};
	double before = cpu(CLOCK_MONOTONIC);
	timer_settime(id, 0, &every, NULL);
	double began = cpu(CLOCK_MONOTONIC);
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, works, NULL);
	unsigned long sent = 0, awaited = 0, forked = 0;
	for (double end = cpu(CLOCK_PROCESS_CPUTIME_ID) + seconds; cpu(CLOCK_PROCESS_CPUTIME_ID) < end;) {
		union sigval value = {.sival_int = 42};
		if (sigqueue(getpid(), SIGRTMIN, value) == 0)
			sent++;
		unsigned long had = ones;
		if (pthread_kill(threads[awaited++ % 3], SIGUSR1))
			fail("pthread_kill");
		while (ones == had) // forever if it is lost
			work();
		if (awaited % 50 == 0) {
			had = children;
			pid_t pid = fork();
			if (pid == 0)
				_exit(3);
			int status;
			while (waitpid(pid, &status, 0) < 0)
				if (errno != EINTR)
					fail("waitpid");
			if (!WIFEXITED(status) || WEXITSTATUS(status) != 3)
				fail("status of a child");
			while (children == had)
				work();
			forked++;
		}
	}
	over = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 100 && received < sent; i++)
		usleep(10000);
	// Ticks that are late count later, but what is lost stays so.
	double lag = 1e9;
	for (int i = 0; i < 3000 && lag > 3; i++) {
		double least = (cpu(CLOCK_MONOTONIC) - began) * 1000 - timers;
		lag = least < lag ? least : lag;
		usleep(1000);
	}
	unsigned long ticks = timers;
	double most = (cpu(CLOCK_MONOTONIC) - before) * 1000;
	printf("%lu queued, %lu received, %lu awaited, %lu children, %lu of %.0f ticks\n", sent, received, awaited, forked, ticks, most);
	if (received != sent || ones != awaited)
		fail("lost");
	if (lag > 3 || ticks > most + 1)
		fail("ticks");
}

static char state(pid_t pid)
{
	char path[64], line[512];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	FILE *f = fopen(path, "r");
	if (!f || !fgets(line, sizeof line, f))
		fail(path);
	fclose(f);
	return strrchr(line, ')')[2];
}

// A process that another one stops and continues stays stopped and runs, in this order.
static void stopped(int times)
{
	pid_t pid = fork();
	if (pid == 0) {
		for (;;)
			work();
	}
	for (int i = 0; i < times; i++) {
		kill(pid, SIGSTOP);
		while (state(pid) != 'T')
			work();
		usleep(3000);
		if (state(pid) != 'T') {
			printf("state %c instead of T\n", state(pid));
			exit(1);
		}
		kill(pid, SIGCONT);
		while (state(pid) == 'T' || state(pid) == 't')
			work();
		for (int j = 0; j < 20; j++)
			work();
	}
	kill(pid, SIGKILL);
	int status;
	waitpid(pid, &status, 0);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail("status");
}

static void *execs(void *self)
{
	work();
	execl(self, self, "nothing", (char *)NULL);
	fail("execl");
	return NULL;
}

static void *ends(void *arg)
{
	work();
	return NULL;
}

// Processes and threads that start, execute programs and end in all ways.
static void storm(char *self, int times)
{
	for (int i = 0; i < times; i++) {
		pid_t pid = i % 4 == 0 ? vfork() : fork();
		if (pid == 0) {
			switch (i % 4) {
			case 0:
				execl(self, self, "nothing", (char *)NULL);
				_exit(1);
			case 1: { // the first thread ends first
				pthread_t other;
				pthread_create(&other, NULL, ends, NULL);
				work();
				pthread_exit(NULL);
			}
			case 2: { // another thread executes a program
				pthread_t threads[4];
				for (int j = 0; j < 3; j++)
					pthread_create(&threads[j], NULL, works, NULL);
				pthread_create(&threads[3], NULL, execs, self);
				works(NULL);
			}
			default: { // all end at once
				pthread_t threads[4];
				for (int j = 0; j < 4; j++)
					pthread_create(&threads[j], NULL, works, NULL);
				work();
				_exit(0);
			}
			}
		}
		int status;
		if (waitpid(pid, &status, 0) != pid)
			fail("waitpid");
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			printf("way %d: status %#x\n", i % 4, status);
			exit(1);
		}
	}
}

// A process that is traced by its parent from the start, with all of its stops.
static void traced(int times)
{
	for (int i = 0; i < times; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			while (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) // a tracer may be attached for a moment
				work();
			raise(SIGUSR2);
			for (int j = 0; j < 100; j++)
				work();
			_exit(5);
		}
		int status, stops = 0;
		for (;;) {
			if (waitpid(pid, &status, __WALL) != pid)
				fail("waitpid");
			if (!WIFSTOPPED(status))
				break;
			if (WSTOPSIG(status) == SIGUSR2)
				stops++;
			if (ptrace(PTRACE_CONT, pid, NULL, NULL))
				fail("PTRACE_CONT");
		}
		if (stops != 1 || !WIFEXITED(status) || WEXITSTATUS(status) != 5) {
			printf("%d stops, status %#x\n", stops, status);
			exit(1);
		}
	}
}

// Children that a traced thread passes its tracer on to.
static void strays(int times)
{
	for (int i = 0; i < times; i++) {
		pid_t pid = syscall(SYS_clone, CLONE_PTRACE | SIGCHLD, 0, 0, 0, 0);
		if (pid == 0) {
			work();
			_exit(6);
		}
		for (int j = 0; j < 10; j++)
			work();
		int status;
		if (waitpid(pid, &status, __WALL) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 6)
			fail("waitpid");
	}
}

// Works, without waiting, until it is killed.
static void busy(int others)
{
	pthread_t thread;
	for (int i = 0; i < others; i++)
		pthread_create(&thread, NULL, works, NULL);
	works(NULL);
}

// Waits after a burst of work, by calls that end with EINTR when a tracer stops the thread.
static void waits(const char *call, double seconds)
{
	int epoll = epoll_create1(0), sem = semget(IPC_PRIVATE, 1, 0600);
	unsigned long calls = 0, interrupted = 0;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (double end = cpu(CLOCK_PROCESS_CPUTIME_ID) + seconds; cpu(CLOCK_PROCESS_CPUTIME_ID) < end; calls++) {
		struct timespec ms = {0, 1000000};
		struct sembuf take = {0, -1, 0};
		struct epoll_event event;
		for (int i = 0; i < 10; i++)
			work();
		errno = 0;
		if (!strcmp(call, "epoll_wait"))
			epoll_wait(epoll, &event, 1, 1);
		else if (!strcmp(call, "semtimedop"))
			semtimedop(sem, &take, 1, &ms);
		else
			sigtimedwait(&set, NULL, &ms);
		if (errno == EINTR)
			interrupted++;
	}
	semctl(sem, 0, IPC_RMID);
	printf("%s: %lu calls, %lu ended with EINTR\n", call, calls, interrupted);
}

int main(int argc, char **argv)
{
	const char *what = argv[1];
	if (!strcmp(what, "nothing"))
		return 0;
	if (!strcmp(what, "signals"))
		signals(atof(argv[2]));
	else if (!strcmp(what, "stopped"))
		stopped(atoi(argv[2]));
	else if (!strcmp(what, "storm"))
		storm(argv[0], atoi(argv[2]));
	else if (!strcmp(what, "traced"))
		traced(atoi(argv[2]));
	else if (!strcmp(what, "strays"))
		strays(atoi(argv[2]));
	else if (!strcmp(what, "busy"))
		busy(atoi(argv[2]));
	else if (!strcmp(what, "idle"))
		pause();
	else
		waits(what, atof(argv[2]));
	printf("ok\n");
	return 0;
}
