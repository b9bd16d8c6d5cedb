/*
 * Calls recursive functions, some of whose calls never return. It prints the elapsed time of the
 * outermost calls in ns, how much of it they slept at least, and how much more fulgur may count.
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static jmp_buf before;
static long longest; /* of the leaves, in ns */
static long asleep; /* since the start, in ns */

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void sleep_ms(int ms)
{
	struct timespec t = { 0, ms * 1000000L };

	nanosleep(&t, NULL);
	asleep += t.tv_nsec;
}

/* Ends the process at depth -1. */
__attribute__((noinline)) int quit(int depth)
{
	int more = 0;

	if (depth < 0)
		_exit(0);
	if (depth)
		more = quit(depth - 1) + 1;
	else
		sleep_ms(20);
	__asm__ volatile("");
	return more;
}

/*
 * At depth 0, it leaves 20 calls of itself by longjmp, as a parser does after an error, and then
 * calls itself 30 times at depth -1.
 */
__attribute__((noinline)) int parse(int depth)
{
	volatile int i, more = 0;
	long begin;

	if (depth == 1)
		longjmp(before, 1);
	if (depth > 1) {
		more = parse(depth - 1) + 1;
	} else if (depth < 0) {
		sleep_ms(1);
	} else {
		if (!setjmp(before))
			parse(20);
		for (i = 0; i < 30; i++) {
			begin = now();
			more += parse(-1);
			if (now() - begin > longest)
				longest = now() - begin;
		}
	}
	__asm__ volatile("");
	return more;
}

int main(int argc, char **argv)
{
	int children = argc > 1 ? atoi(argv[1]) : 0;
	long begin;
	pid_t child;

	while (children-- > 0) {
		child = fork();
		if (!child)
			quit(-1);
		waitpid(child, NULL, 0);
	}
	begin = now();
	quit(7);
	printf("quit %ld\nquit_asleep %ld\nquit_more 0\n", now() - begin, asleep);
	asleep = 0;
	begin = now();
	parse(0);
	/* The search for the enclosing call skips 8 calls at a time. */
	printf("parse %ld\nparse_asleep %ld\nparse_more %ld\n", now() - begin, asleep, 3 * longest);
	return 0;
}
