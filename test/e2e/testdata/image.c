// SPDX-License-Identifier: Apache-2.0
/*
 * image TURNS OTHER: does WORK parts of work in the function FUNCTION, prints
 * the function's name, its CPU time and the elapsed time in ns, and how often it
 * left the CPU, and executes the program OTHER, which does the same, TURNS times
 * in total.
 * Programs that differ only in FUNCTION and WORK have the same addresses.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

static volatile unsigned long sink;

__attribute__((noinline)) void FUNCTION(void)
{
	for (unsigned long i = 0; i < WORK * 1000000UL; i++)
		sink = sink * 31 + i;
}

static long now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

static long switches(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return r.ru_nvcsw + r.ru_nivcsw;
}

int main(int argc, char **argv)
{
	char turns[16];
	int left = argc > 1 ? atoi(argv[1]) - 1 : 0;
	long left_cpu = switches();
	long begin = now(CLOCK_MONOTONIC), start = now(CLOCK_PROCESS_CPUTIME_ID);

	FUNCTION();
	printf("%s %ld %ld %ld\n", TEXT(FUNCTION), now(CLOCK_PROCESS_CPUTIME_ID) - start,
	       now(CLOCK_MONOTONIC) - begin, switches() - left_cpu);
	fflush(stdout); /* before exec */
	if (left <= 0)
		return 0;
	snprintf(turns, sizeof(turns), "%d", left);
	execl(argv[2], argv[2], turns, argv[0], (char *)0);
	return 1;
}
