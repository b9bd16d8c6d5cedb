// SPDX-License-Identifier: Apache-2.0
/*
 * shares [FILE]: divides its work 60 : 30 : 10 between three functions, in
 * turn. Writes the CPU time of each in ns, and the number of context switches, to
 * FILE.
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

static long cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

int main(int argc, char **argv)
{
	const unsigned long percent = 10000000;
	long at[4];
	struct rusage r;
	FILE *out;

	at[0] = cpu_time();
	most(60 * percent);
	at[1] = cpu_time();
	some(30 * percent);
	at[2] = cpu_time();
	little(10 * percent);
	at[3] = cpu_time();
	if (argc < 2)
		return 0;
	getrusage(RUSAGE_SELF, &r);
	out = fopen(argv[1], "w");
	if (!out)
		return 1;
	fprintf(out, "%ld %ld %ld %ld\n", at[1] - at[0], at[2] - at[1], at[3] - at[2],
		r.ru_nvcsw + r.ru_nivcsw);
	return fclose(out) != 0;
}
