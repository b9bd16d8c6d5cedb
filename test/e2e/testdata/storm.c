// SPDX-License-Identifier: Apache-2.0
/*
 * storm CHILDREN: waits for its standard input to end, then forks children
 * that work for half a millisecond each, one after the other, and prints the
 * CPU time of them all and of itself, in ns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

static long cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

__attribute__((noinline)) void burn(void)
{
	for (unsigned long i = 0; i < 1000; i++)
		sink = sink * 31 + i;
}

static long microseconds(int who)
{
	struct rusage r;

	getrusage(who, &r);
	return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000L + r.ru_utime.tv_usec +
	       r.ru_stime.tv_usec;
}

int main(int argc, char **argv)
{
	char byte;
	long before;

	while (read(0, &byte, 1) > 0)
		;
	before = microseconds(RUSAGE_SELF);
	for (int n = argc > 1 ? atoi(argv[1]) : 0; n > 0; n--) {
		pid_t child = fork();

		if (child == 0) {
			for (long end = cpu_time() + 500000; cpu_time() < end;)
				burn();
			_exit(0);
		}
		if (child < 0 || waitpid(child, NULL, 0) != child)
			return 1;
	}
	printf("%ld\n",
	       1000 * (microseconds(RUSAGE_SELF) - before + microseconds(RUSAGE_CHILDREN)));
	return 0;
}
