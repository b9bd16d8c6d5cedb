/*
 * Runs alone, and then with two threads at once, and writes its own account of both: in ns, the CPU
 * time of the main thread in its phase and after it, and the time in which both threads ran. The
 * last number is how often any of them was switched.
 */
#define _GNU_SOURCE
#include <err.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define THREADS 2
#define GAP 20000 /* ns; a thread that is switched out is away for longer */
#define MAX_RUNS 100000

typedef long long ns;

static ns now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* How often this thread has been switched out. */
static long switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

static ns phase; /* CPU time of each thread */

/* The times in which a thread ran, from begin to end. */
static struct runs {
	ns begin[MAX_RUNS], end[MAX_RUNS];
	int n;
} runs[THREADS];

static pthread_barrier_t together;

static void *parallel(void *of)
{
	struct runs *r = of;
	struct sched_param first = { .sched_priority = 1 };
	long switched;
	cpu_set_t own;
	ns last, end;

	CPU_ZERO(&own);
	CPU_SET(r - runs, &own);
	if (sched_setaffinity(0, sizeof(own), &own) || sched_setscheduler(0, SCHED_FIFO, &first))
		err(1, "get a CPU at once");
	pthread_barrier_wait(&together);
	end = now(CLOCK_THREAD_CPUTIME_ID) + phase;
	switched = switches();
	last = r->begin[0] = now(CLOCK_MONOTONIC);
	while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
		ns t = now(CLOCK_MONOTONIC);
		/* An interrupt takes time, too, but the thread is still the one that runs. */
		if (t - last > GAP && switches() != switched) {
			switched = switches();
			r->end[r->n++] = last;
			if (r->n == MAX_RUNS)
				errx(1, "too many switches");
			r->begin[r->n] = t;
		}
		last = t;
	}
	r->end[r->n++] = last;
	return NULL;
}

static ns overlap(void)
{
	const struct runs *a = &runs[0], *b = &runs[1];
	int i = 0, j = 0;
	ns sum = 0;

	while (i < a->n && j < b->n) {
		ns begin = a->begin[i] > b->begin[j] ? a->begin[i] : b->begin[j];
		ns end = a->end[i] < b->end[j] ? a->end[i] : b->end[j];

		if (begin < end)
			sum += end - begin;
		if (a->end[i] < b->end[j])
			i++;
		else
			j++;
	}
	return sum;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	long switched;
	ns begin, alone, after;
	int i;

	phase = atoll(argv[argc - 1]);
	puts("ready");
	fflush(stdout);
	getchar();
	switched = switches();
	begin = now(CLOCK_THREAD_CPUTIME_ID);
	while (now(CLOCK_THREAD_CPUTIME_ID) < begin + phase)
		;
	alone = now(CLOCK_THREAD_CPUTIME_ID);
	pthread_barrier_init(&together, NULL, THREADS);
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, parallel, &runs[i]))
			errx(1, "start a thread");
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	after = now(CLOCK_THREAD_CPUTIME_ID);
	printf("%lld %lld %lld %ld\n", alone - begin, after - alone, overlap(),
	       switches() - switched + runs[0].n + runs[1].n);
	fflush(stdout);
	getchar();
	return 0;
}
