// SPDX-License-Identifier: Apache-2.0
/*
 * storm CHILDREN: waits for its standard input to end, then forks children
 * that work for half a millisecond each, one after the other. Prints the total
 * CPU time of the children and itself and the elapsed time, both in ns, and the
 * number of context switches.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

static long now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

__attribute__((noinline)) void burn(void)
{
	for (unsigned long i = 0; i < 10000; i++)
		sink = sink * 31 + i;
}

/* Adds the CPU time so far, in ns, and the number of context switches. */
static long used(int who, long *switches)
{
	struct rusage r;

	getrusage(who, &r);
	*switches += r.ru_nvcsw + r.ru_nivcsw;
	return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000000L +
	       (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000L;
}

int main(int argc, char **argv)
{
	char byte;
	long ns, start, switches = 0, children = argc > 1 ? atoi(argv[1]) : 0;

	while (read(0, &byte, 1) > 0)
		;
	start = now(CLOCK_MONOTONIC);
	ns = -used(RUSAGE_SELF, &switches);
	for (int n = children; n > 0; n--) {
		pid_t child = fork();

		if (child == 0) {
			for (long end = now(CLOCK_PROCESS_CPUTIME_ID) + 500000;
			     now(CLOCK_PROCESS_CPUTIME_ID) < end;)
				burn();
			_exit(0);
		}
		if (child < 0 || waitpid(child, NULL, 0) != child)
			return 1;
	}
	ns += used(RUSAGE_SELF, &switches) + used(RUSAGE_CHILDREN, &switches);
	/* The exit of a child is a context switch, too. */
	printf("%ld %ld %ld\n", ns, now(CLOCK_MONOTONIC) - start, switches + children);
	return 0;
}
