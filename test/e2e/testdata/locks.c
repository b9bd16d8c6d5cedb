/*
 * Waits for a futex that nobody wakes, a known number of times, and calls each other operation
 * that can wait. It prints the number of calls, bounds of the time in ns, and the address of
 * the futex.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAITS 20
#define WAIT_NS 1000000L

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

/* The word differs from what they expect, or they time out in 1970, or fail. */
static const int others[] = {
	FUTEX_WAIT_BITSET,
	FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME,
	FUTEX_WAIT_REQUEUE_PI,
	FUTEX_WAIT_REQUEUE_PI | FUTEX_CLOCK_REALTIME,
	FUTEX_LOCK_PI,
	FUTEX_LOCK_PI2,
	FUTEX_LOCK_PI2 | FUTEX_CLOCK_REALTIME,
};
#define OTHERS (2 * (int)(sizeof(others) / sizeof(others[0]))) /* shared and private */

extern char __executable_start;
static unsigned int word;

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) long contend(int operation)
{
	struct timespec timeout = { 0, WAIT_NS };
	long begin = now();

	syscall(SYS_futex, &word, operation, 0, &timeout, NULL, 0);
	return now() - begin;
}

int main(void)
{
	long most = 0;
	int i;

	for (i = 0; i < WAITS; i++) {
		most += contend(i % 2 ? FUTEX_WAIT_PRIVATE : FUTEX_WAIT);
		syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
	for (i = 0; i < OTHERS; i++)
		most += contend(others[i / 2] | (i % 2 ? FUTEX_PRIVATE_FLAG : 0));
	printf("waits %d\neach %ld\nleast %ld\nmost %ld\naddress %ld\nrelative %ld\n",
	       WAITS + OTHERS, WAIT_NS, WAITS * WAIT_NS, most, (long)&word,
	       (long)((char *)&word - &__executable_start));
	/* A process that exits at once may be gone before its mappings are read. */
	usleep(200000);
	return 0;
}
