/*
 * Calls nap() for many different times. For each call, it prints a lower and an upper bound of its time
 * in ns: what passed inside of it, and around it.
 */
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CALLS 400

static long inside[CALLS], around[CALLS];

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) void nap(int i, long ns)
{
	long begin = now();
	struct timespec t = { 0, ns };

	/* With the C library's function, a signal could end it early. */
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, &t);
	inside[i] = now() - begin;
	__asm__ volatile("");
}

int main(void)
{
	long begin, ns = 1000;
	int i;

	for (i = 0; i < CALLS; i++) {
		begin = now();
		nap(i, ns);
		around[i] = now() - begin;
		ns += ns / 50 + 1; /* up to 2.5 ms, then from the beginning */
		if (ns > 2500000)
			ns = 1000;
	}
	for (i = 0; i < CALLS; i++)
		printf("%ld %ld\n", inside[i], around[i]);
	return 0;
}
