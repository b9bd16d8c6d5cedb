/* Does everything that can go wrong under a tracer, and prints what came of
   it: the same each time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, SIGNALS = 500, CHILDREN = 25 };

static volatile sig_atomic_t usr1, traps;
static volatile uint64_t alarms;

static void on_usr1(int sig) { (void)sig; usr1++; }
static void on_trap(int sig) { (void)sig; traps++; }
static void on_alarm(int sig) { (void)sig; alarms++; }

static uint64_t churn(uint64_t x, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		if (x & 1)
			x += (uint64_t)i;
	}
	return x;
}

static void *thread(void *arg)
{
	uint64_t x = (uint64_t)(uintptr_t)arg + 1;
	sigset_t block;
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &block, NULL);
	for (int i = 0; i < 2500; i++)
		x = churn(x, 20000);
	return (void *)(uintptr_t)x;
}

/* Threads that wait for each other: reads and waits that are interrupted. */
static int ping[2], pong[2];

static void *echo(void *arg)
{
	(void)arg;
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	char c;
	while (read(ping[0], &c, 1) == 1 && write(pong[1], &c, 1) == 1 && c != 'q')
		churn((uint64_t)c, 100);
	return NULL;
}

static int echoes(void)
{
	pthread_t t;
	int good = 0;
	char c = 'a';
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	if (pipe(ping) || pipe(pong) || pthread_create(&t, NULL, echo, NULL))
		return -1;
	for (int i = 0; i <= 3000; i++) {
		c = i == 3000 ? 'q' : (char)('a' + i % 5);
		char back = 0;
		if (write(ping[1], &c, 1) == 1 && read(pong[0], &back, 1) == 1 && back == c)
			good++;
	}
	pthread_join(t, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return good;
}

/* What pushf shows must not have the trap flag. */
static int flags_clean(void)
{
#ifdef __x86_64__
	for (int i = 0; i < 200000; i++) {
		uint64_t flags;
		__asm__ volatile("pushfq; pop %0" : "=r"(flags));
		if (flags & 0x100)
			return 0;
	}
#endif
	return 1;
}

/* Executes itself in place of all its threads, the given number of times. */
static int again(long times)
{
	pthread_t t;
	uint64_t x = churn((uint64_t)times + 1, 3000000);
	printf("again %ld %lx\n", times, (unsigned long)x);
	fflush(stdout);
	if (times == 0)
		return 3;
	char number[16];
	snprintf(number, sizeof number, "%ld", times - 1);
	pthread_create(&t, NULL, thread, NULL);
	churn(x, 1000000);
	execl("/proc/self/exe", "busy", "again", number, NULL);
	return 1;
}

int main(int argc, char **argv)
{
	if (argc > 2)
		return again(strtol(argv[2], NULL, 10));
	if (argc > 1) {
		printf("child %s %lx\n", argv[1], (unsigned long)churn(strtoul(argv[1], NULL, 10) + 1, 300000));
		return 7;
	}
	if (getchar() != 'g') /* it is stepped now, if it is at all */
		return 1;
	signal(SIGUSR1, on_usr1);
	signal(SIGTRAP, on_trap);
	signal(SIGALRM, on_alarm);
	struct itimerval timer = {{0, 1000}, {0, 1000}};
	setitimer(ITIMER_REAL, &timer, NULL);

	pthread_t threads[THREADS];
	for (intptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, thread, (void *)i);

	uint64_t x = 1;
	for (int i = 0; i < SIGNALS; i++) {
		x = churn(x, 5000);
		raise(SIGUSR1);
		if (i % 10 == 0)
			raise(SIGTRAP);
#ifdef __x86_64__
		if (i % 10 == 5)
			__asm__ volatile("int3");
#endif
	}
	printf("usr1 %d traps %d x %lx\n", usr1, traps, (unsigned long)x);
	printf("flags clean %d\n", flags_clean());
	printf("echoes %d\n", echoes());
	fflush(stdout);

	for (int i = 0; i < CHILDREN; i++) {
		char number[16];
		snprintf(number, sizeof number, "%d", i);
		pid_t pid = i % 2 ? vfork() : fork();
		if (pid == 0) {
			execl("/proc/self/exe", "busy", number, NULL);
			_exit(1);
		}
		x = churn(x, 20000);
		int status;
		while (waitpid(pid, &status, 0) < 0)
			;
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
			printf("child %d: status %x\n", i, status);
	}
	for (int i = 0; i < THREADS; i++) {
		void *result;
		pthread_join(threads[i], &result);
		printf("thread %d %lx\n", i, (unsigned long)(uintptr_t)result);
	}
	printf("alarms %s, x %lx\n", alarms > 10 ? "many" : "few", (unsigned long)x);
	fflush(stdout);
	return again(10);
}
