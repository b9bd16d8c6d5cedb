/* Signals that interrupt leaf functions, on the stack and on one of their own. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static volatile unsigned sink;

__attribute__((noinline)) static unsigned work(unsigned n)
{
	for (unsigned i = 0; i < 20000; i++)
		n = n * 1664525 + 1013904223;
	return n;
}

static void handler(int signal)
{
	char room[4096];

	memset(room, signal, sizeof(room));
	sink += work(sink) + room[7];
}

__attribute__((noinline)) static void outer(void)
{
	char room[512];

	memset(room, (int)sink, sizeof(room));
	sink += work(sink) + room[sink % 512];
	free(malloc(100 + sink % 1000));
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct itimerval timer = { { 0, 300 }, { 0, 300 } };
	stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 };

	if (argc > 1 && argv[1][0] == 'a') {
		sigaltstack(&stack, NULL);
		action.sa_flags |= SA_ONSTACK;
	}
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (;;)
		outer();
}
