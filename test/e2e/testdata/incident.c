/*
 * Does what it reads, a line each, for a flight recorder to notice: wait, spin, share, grow, call, exit, abort. It writes
 * when each began and ended, CLOCK_MONOTONIC in ns.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long long now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void wait_ms(long ms) { usleep(ms * 1000); }

/* A request that takes long. */
__attribute__((noinline)) void handle(long ms)
{
	wait_ms(ms);
	__asm__ volatile("");
}

static void spin_ms(long ms)
{
	long long end = now(CLOCK_THREAD_CPUTIME_ID) + ms * 1000000LL;

	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

static void *spin_thread(void *ms)
{
	spin_ms((long)ms);
	return NULL;
}

/* Two threads that both need the only CPU that they may use. */
static void share_ms(long ms)
{
	pthread_t threads[2];
	cpu_set_t all, one;
	int i;

	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&one);
	for (i = 0; !CPU_ISSET(i, &all); i++)
		;
	CPU_SET(i, &one);
	sched_setaffinity(0, sizeof(one), &one);
	for (i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, spin_thread, (void *)ms);
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	sched_setaffinity(0, sizeof(all), &all);
}

static void grow_mb(long mb)
{
	char *p = malloc(mb << 20);

	memset(p, 1, mb << 20);
	__asm__ volatile("" ::"r"(p) : "memory");
}

int main(void)
{
	char line[100], what[20];
	long n;

	setlinebuf(stdout);
	while (fgets(line, sizeof(line), stdin) && sscanf(line, "%19s %ld", what, &n) == 2) {
		long long begin = now(CLOCK_MONOTONIC);

		if (!strcmp(what, "wait"))
			wait_ms(n);
		else if (!strcmp(what, "spin"))
			spin_ms(n);
		else if (!strcmp(what, "share"))
			share_ms(n);
		else if (!strcmp(what, "grow"))
			grow_mb(n);
		else if (!strcmp(what, "call"))
			handle(n);
		printf("%lld %lld\n", begin, now(CLOCK_MONOTONIC));
		if (!strcmp(what, "exit"))
			exit(n);
		if (!strcmp(what, "abort"))
			abort();
	}
	return 0;
}
