// SPDX-License-Identifier: Apache-2.0
/*
 * shares [FILE]: divides its work 60 : 30 : 10 between three functions, in
 * turn. Writes a line for each to FILE: its CPU time and elapsed time in ns, and
 * the number of context switches of all.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

static volatile unsigned long sink;

#define WORK(name)                                                                                 \
	__attribute__((noinline)) void name(unsigned long n)                                       \
	{                                                                                          \
		for (unsigned long i = 0; i < n; i++)                                              \
			sink = sink * 31 + i;                                                      \
	}

WORK(most)
WORK(some)
WORK(little)

static long now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

static void times(long at[2])
{
	at[0] = now(CLOCK_PROCESS_CPUTIME_ID);
	at[1] = now(CLOCK_MONOTONIC);
}

int main(int argc, char **argv)
{
	const unsigned long percent = 10000000;
	long at[4][2];
	struct rusage r;
	FILE *out;

	times(at[0]);
	most(60 * percent);
	times(at[1]);
	some(30 * percent);
	times(at[2]);
	little(10 * percent);
	times(at[3]);
	if (argc < 2)
		return 0;
	getrusage(RUSAGE_SELF, &r);
	out = fopen(argv[1], "w");
	if (!out)
		return 1;
	for (int i = 0; i < 3; i++)
		fprintf(out, "%ld %ld %ld\n", at[i + 1][0] - at[i][0], at[i + 1][1] - at[i][1],
			r.ru_nvcsw + r.ru_nivcsw);
	return fclose(out) != 0;
}
