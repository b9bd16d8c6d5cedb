/* Checks itself without end: that it computes right, that its signal mask, its
   dispositions and its flags stay what it made them, and that each signal
   arrives as often as it must. It keeps its records in a file that the test maps
   too: steadfast FILE MODE. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* As in board_test.go. */
struct board {
	_Atomic uint64_t ready, turns, wrong, what, next, heard[65];
};

static struct board *board;
static const char *self = "/proc/self/exe", *file;

static void wrong(uint64_t what)
{
	board->what = what;
	board->wrong++;
}

static uint64_t churn(uint64_t x, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		if (x & 1)
			x += (uint64_t)i;
	}
	return x;
}

/* One turn of work, with a known result. */
enum { ROUNDS = 3000 };
static uint64_t expected;

static void turn(void)
{
	if (churn(1, ROUNDS) != expected)
		wrong(1);
#ifdef __x86_64__
	uint64_t flags;
	__asm__ volatile("pushfq; pop %0" : "=r"(flags));
	if (flags & 0x100)
		wrong(2);
#endif
	board->turns++;
}

static char stack[1 << 16];

static void heard(int sig, siginfo_t *info, void *context)
{
	char here;
	(void)context;
	if (&here < stack || &here >= stack + sizeof stack)
		wrong(3);
	if (sig >= SIGRTMIN && info->si_code == SI_QUEUE &&
	    (uint64_t)(uintptr_t)info->si_value.sival_ptr != board->next++)
		wrong(4);
	churn(1, 20);
	board->heard[sig]++;
}

/* Nothing but the program itself changes these. */
static void settings(const sigset_t *mask, void (*trap)(int, siginfo_t *, void *))
{
	static sigset_t now;
	struct sigaction action;
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	if (memcmp(&now, mask, sizeof now))
		wrong(5);
	sigaction(SIGTRAP, NULL, &action);
	if (action.sa_sigaction != trap)
		wrong(6);
}

static void spin(void (*trap)(int, siginfo_t *, void *), int pending)
{
	static sigset_t mask, now;
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	for (board->ready = 1;;) {
		turn();
		settings(&mask, trap);
		sigpending(&now);
		if (sigismember(&now, SIGTRAP) && !pending)
			wrong(7);
	}
}

/* All signals are handled, on a stack of their own. */
static void handling(void)
{
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
	struct sigaction action = {.sa_sigaction = heard, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
	sigfillset(&action.sa_mask);
	sigaltstack(&alternate, NULL);
	for (int sig = 1; sig <= 64; sig++)
		sigaction(sig, &action, NULL);
	spin(heard, 1);
}

static void *taking(void *arg)
{
	sigset_t trap;
	siginfo_t info;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	for (;;)
		if (sigwaitinfo(&trap, &info) == SIGTRAP)
			board->heard[SIGTRAP]++;
	return arg;
}

/* SIGTRAP is blocked everywhere; with a second thread, that one takes it. */
static void blocking(int take)
{
	sigset_t trap;
	pthread_t t;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	pthread_sigmask(SIG_BLOCK, &trap, NULL);
	if (take)
		pthread_create(&t, NULL, taking, NULL);
	spin((void (*)(int, siginfo_t *, void *))SIG_DFL, take);
}

static void *worker(void *arg)
{
	turn();
	return (void *)(uintptr_t)churn((uintptr_t)arg, 100);
}

static void child(pid_t pid)
{
	int status;
	while (waitpid(pid, &status, __WALL) < 0)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
		wrong(8);
}

/* Threads and children come and go. */
static void storming(void)
{
	enum { MANY = 8 };
	for (board->ready = 1;;) {
		pthread_t threads[MANY];
		for (uintptr_t i = 0; i < MANY; i++)
			if (pthread_create(&threads[i], NULL, worker, (void *)i))
				wrong(9);
		for (uintptr_t i = 0; i < MANY; i++) {
			void *result = NULL;
			pthread_join(threads[i], &result);
			if ((uintptr_t)result != churn(i, 100))
				wrong(10);
		}
		pid_t pid = fork();
		if (pid == 0) {
			/* Ends with threads that still run. */
			pthread_create(&threads[0], NULL, worker, NULL);
			pthread_create(&threads[1], NULL, worker, NULL);
			churn(1, 10000);
			_exit(7);
		}
		child(pid);
		pid = vfork();
		if (pid == 0) {
			execl(self, "steadfast", file, "seven", NULL);
			_exit(1);
		}
		child(pid);
		turn();
	}
}

/* The children of a traced thread, if it clones so, are traced as well. */
static void cloning(void)
{
	for (board->ready = 1;;) {
		pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PTRACE | SIGCHLD, 0, 0, 0, 0);
		if (pid == 0)
			_exit(7);
		child(pid);
		board->turns++;
	}
}

static void *forever(void *arg)
{
	for (;;)
		churn(1, 1000);
	return arg;
}

static void *spinning(void *arg)
{
	spin((void (*)(int, siginfo_t *, void *))SIG_DFL, 0);
	return arg;
}

/* The first thread has ended, the other has not. */
static void leaving(void)
{
	pthread_t t;
	pthread_create(&t, NULL, spinning, NULL);
	pthread_exit(NULL);
}

static void *replacing(void *arg)
{
	churn(1, ROUNDS);
	execl(self, "steadfast", file, "exec", NULL);
	wrong(11);
	return arg;
}

/* Threads other than the first execute the program again and again. */
static void executing(void)
{
	pthread_t t;
	turn();
	board->ready = 1;
	pthread_create(&t, NULL, forever, NULL);
	pthread_create(&t, NULL, replacing, NULL);
	forever(NULL);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	file = argv[1];
	if (!strcmp(argv[2], "seven"))
		return 7;
	int fd = open(file, O_RDWR | O_CLOEXEC);
	board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || board == MAP_FAILED)
		return 2;
	expected = churn(1, ROUNDS);
	if (!strcmp(argv[2], "handles"))
		handling();
	if (!strcmp(argv[2], "default"))
		spin((void (*)(int, siginfo_t *, void *))SIG_DFL, 0);
	if (!strcmp(argv[2], "blocks"))
		blocking(0);
	if (!strcmp(argv[2], "takes"))
		blocking(1);
	if (!strcmp(argv[2], "storms"))
		storming();
	if (!strcmp(argv[2], "clones"))
		cloning();
	if (!strcmp(argv[2], "leaderless"))
		leaving();
	if (!strcmp(argv[2], "exec"))
		executing();
	return 2;
}
