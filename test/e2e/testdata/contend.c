/*
 * Contends for a lock of the kernel: the lock of a file, which a thread holds nearly all of
 * the time because it writes much. Another thread writes, too, until it has slept a known number
 * of times. Then it contends for a futex, on which a thread waits a known number of times until
 * another one wakes it. It does both for each line on standard input, or once without arguments,
 * and prints its own counts.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WRITES 20 /* that sleep */
#define MAX_WRITES 10000
#define SIZE (32L << 20)
#define WAKES 20

static char *buffer;
static int file;
static volatile int done;
static unsigned int word;

__attribute__((noinline)) void holds(void)
{
	if (pwrite(file, buffer, SIZE, 0) != SIZE)
		_exit(3);
	__asm__ volatile("");
}

__attribute__((noinline)) void waits(void)
{
	if (pwrite(file, buffer, 1, 0) != 1)
		_exit(3);
	__asm__ volatile("");
}

__attribute__((noinline)) void sleeps(void)
{
	syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	__asm__ volatile("");
}

/* Wakes the other thread when it sleeps. */
__attribute__((noinline)) void wakes(void)
{
	while (syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 0)
		usleep(1000);
	__asm__ volatile("");
}

static void *holder(void *unused)
{
	pthread_setname_np(pthread_self(), "holder");
	while (!done)
		holds();
	return unused;
}

static void *sleeper(void *unused)
{
	int i;

	pthread_setname_np(pthread_self(), "sleeper");
	for (i = 0; i < WAKES; i++)
		sleeps();
	return unused;
}

/* How often this thread has slept. */
static long slept(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static void run(void)
{
	pthread_t thread;
	int i, writes = 0;

	done = 0;
	pthread_create(&thread, NULL, holder, NULL);
	for (i = 0; i < MAX_WRITES && writes < WRITES; i++) {
		long before;

		usleep(1000); /* so that the holder gets the lock, if it gets a CPU */
		before = slept();
		waits();
		writes += slept() > before;
	}
	done = 1;
	pthread_join(thread, NULL);
	pthread_create(&thread, NULL, sleeper, NULL);
	for (i = 0; i < WAKES; i++)
		wakes();
	pthread_join(thread, NULL);
	printf("writes %d\nwakes %d\nend 0\n", writes, WAKES);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	(void)argv;
	buffer = calloc(1, SIZE);
	file = memfd_create("contended", 0);
	if (!buffer || file < 0)
		return 2;
	if (argc < 2) {
		run();
		return 0;
	}
	while (getchar() != EOF)
		run();
	return 0;
}
