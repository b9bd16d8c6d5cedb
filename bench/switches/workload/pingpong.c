/*
 * Two processes that send each other a byte through two pipes, as in perf bench sched pipe.
 * perf itself would be a load with a language runtime: Debian links it with libpython.
 *
 * Usage: pingpong OPERATIONS
 *
 * It prints the number of operations per second.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static __attribute__((noinline)) void pass(int from, int to)
{
	char byte;

	if (read(from, &byte, 1) != 1 || write(to, &byte, 1) != 1)
		exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	long operations = argc == 2 ? atol(argv[1]) : 0, i;
	int there[2], back[2], status;
	double begin;

	if (operations <= 0 || pipe(there) || pipe(back))
		return 1;
	begin = now();
	switch (fork()) {
	case -1:
		return 1;
	case 0:
		close(there[1]); /* so that the end of one process ends the other */
		close(back[0]);
		for (i = 0; i < operations; i++)
			pass(there[0], back[1]);
		return 0;
	}
	close(there[0]);
	close(back[1]);
	if (write(there[1], "", 1) != 1)
		return 1;
	for (i = 1; i < operations; i++)
		pass(back[0], there[1]);
	if (wait(&status) < 0 || status)
		return 1;
	printf("%f\n", operations / (now() - begin));
	return 0;
}
