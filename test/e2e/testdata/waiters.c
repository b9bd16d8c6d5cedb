/*
 * Threads that wait, each in its own way and by its own name, and print an account: "NAME LEAST MOST", where LEAST is a
 * time, in us, that the thread has waited for certain, and MOST one that it cannot have exceeded. The name is in effect
 * longer than LEAST, and shorter than MOST. Argument: the length of the long waits in ms.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static long length; /* us */
static int ends[2]; /* of a pipe */
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t ready;

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static void sleep_for(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

/* Naps of 25 ms, and then as many of 0.1 ms. */
__attribute__((noinline)) static long nap(void)
{
	int n = length / 25000;

	for (int i = 0; i < n; i++)
		sleep_for(25000);
	for (int i = 0; i < n; i++)
		sleep_for(100);
	return n * 25100L;
}

/* Main writes after the length, and not before. */
__attribute__((noinline)) static long read_pipe(void)
{
	char c;

	pthread_barrier_wait(&ready);
	if (read(ends[0], &c, 1) != 1)
		abort();
	return 0;
}

__attribute__((noinline)) static long take_lock(void)
{
	pthread_barrier_wait(&ready);
	pthread_mutex_lock(&held);
	pthread_mutex_unlock(&held);
	return 0;
}

/* Shares a CPU with another such thread until it has lost it some times. */
__attribute__((noinline)) static long lose_cpu(void)
{
	struct rusage used;

	do
		getrusage(RUSAGE_THREAD, &used);
	while (used.ru_nivcsw < 10);
	return 0;
}

struct waiter {
	const char *name;
	long (*wait)(void);
	pthread_t thread;
	long least, most;
};

static void *run(void *arg)
{
	struct waiter *w = arg;
	long begin = now();

	if (w->wait == lose_cpu) {
		cpu_set_t one;

		sched_getaffinity(0, sizeof(one), &one);
		for (int cpu = 0, found = 0; cpu < CPU_SETSIZE; cpu++) {
			if (found)
				CPU_CLR(cpu, &one);
			found = found || CPU_ISSET(cpu, &one);
		}
		sched_setaffinity(0, sizeof(one), &one);
	}
	prctl(PR_SET_NAME, w->name);
	w->least = w->wait();
	prctl(PR_SET_NAME, "done");
	w->most = now() - begin;
	return NULL;
}

int main(int argc, char **argv)
{
	static struct waiter all[] = {
		{ .name = "napper", .wait = nap },     { .name = "reader", .wait = read_pipe },
		{ .name = "locker", .wait = take_lock }, { .name = "loser", .wait = lose_cpu },
		{ .name = "loser2", .wait = lose_cpu },
	};

	length = argc > 1 ? atol(argv[1]) * 1000 : 500000;
	if (pipe(ends))
		return 1;
	pthread_barrier_init(&ready, NULL, 3);
	pthread_mutex_lock(&held);
	for (int i = 0; i < 5; i++)
		pthread_create(&all[i].thread, NULL, run, &all[i]);
	pthread_barrier_wait(&ready);
	sleep_for(length);
	pthread_mutex_unlock(&held);
	if (write(ends[1], "x", 1) != 1)
		return 1;
	for (int i = 0; i < 5; i++) {
		pthread_join(all[i].thread, NULL);
		printf("%s %ld %ld\n", all[i].name, all[i].least, all[i].most);
	}
	return 0;
}
