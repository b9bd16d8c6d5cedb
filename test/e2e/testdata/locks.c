/*
 * Waits for a futex that nobody wakes, a known number of times, and calls each other operation
 * that can wait. It prints the number of calls, bounds of the time in ns, and the address of
 * the futex.
 */
#define _GNU_SOURCE
#include <errno.h>
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

/* Calls futex_waitv (Linux 5.16), or returns -1. */
__attribute__((noinline)) long contend_any(void)
{
	struct futex_waitv waiter = { .uaddr = (unsigned long)&word, .flags = FUTEX_32 };
	struct timespec until;
	long begin = now();

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (until.tv_nsec + WAIT_NS) / 1000000000L;
	until.tv_nsec = (until.tv_nsec + WAIT_NS) % 1000000000L;
	if (syscall(SYS_futex_waitv, &waiter, 1, 0, &until, CLOCK_MONOTONIC) == -1 && errno == ENOSYS)
		return -1;
	return now() - begin;
}

#define SYS_futex_wait 455
#define FUTEX2_SIZE_U32 2

/* Calls futex_wait (Linux 6.7), or returns -1. */
__attribute__((noinline)) long contend_new(void)
{
	struct timespec until;
	long begin = now();

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (until.tv_nsec + WAIT_NS) / 1000000000L;
	until.tv_nsec = (until.tv_nsec + WAIT_NS) % 1000000000L;
	if (syscall(SYS_futex_wait, &word, 0L, FUTEX_BITSET_MATCH_ANY, FUTEX2_SIZE_U32, &until, CLOCK_MONOTONIC) == -1 && errno == ENOSYS)
		return -1;
	return now() - begin;
}

int main(void)
{
	long most = 0, time;
	int i, waits = WAITS;

	for (i = 0; i < WAITS; i++) {
		most += contend(i % 2 ? FUTEX_WAIT_PRIVATE : FUTEX_WAIT);
		syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
	for (i = 0; i < OTHERS; i++)
		most += contend(others[i / 2] | (i % 2 ? FUTEX_PRIVATE_FLAG : 0));
	word = 0; /* FUTEX_LOCK_PI took the lock */
	for (i = 0; i < WAITS; i++) {
		time = i % 2 ? contend_any() : contend_new();
		if (time < 0)
			continue;
		most += time;
		waits++;
	}
	printf("waits %d\neach %ld\nleast %ld\nmost %ld\naddress %ld\n",
	       waits + OTHERS, WAIT_NS, waits * WAIT_NS, most, (long)&word);
	/* A process that exits at once may be gone before its mappings are read. */
	usleep(200000);
	return 0;
}
