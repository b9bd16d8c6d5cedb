/*
 * Calls functions and passes USDT probes a known number of times. It prints its own counts,
 * and for times of sleeps a lower and an upper bound in ns.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SINK 77
#define REQUESTS 20

static long sleeps, unanswered, naps, nap_least, nap_most, calls, outer_least,
	outer_most, whole_least, returned, jumped, writes, requests, request_least, request_most;
static jmp_buf before;
static int to_worker[2];

#if defined(__x86_64__)
#define OPERANDS "8@%%rdi"
#define ARGUMENT "D"(id)
#else
#define OPERANDS "8@x0"
#define ARGUMENT "r"(id) /* where the caller put it */
#endif

/* A USDT probe; see sys/sdt.h of SystemTap. */
#define PROBE(name)                                                                                \
	__asm__ volatile("990: nop\n"                                                              \
			 ".pushsection .note.stapsdt,\"\",\"note\"\n"                              \
			 ".balign 4\n"                                                             \
			 ".4byte 992f-991f, 994f-993f, 3\n"                                        \
			 "991: .asciz \"stapsdt\"\n"                                               \
			 "992: .balign 4\n"                                                        \
			 "993: .8byte 990b, 0, 0\n"                                                \
			 ".asciz \"fulgur\"\n.asciz \"" name "\"\n.asciz \"" OPERANDS "\"\n"       \
			 "994: .balign 4\n"                                                        \
			 ".popsection" ::ARGUMENT                                                  \
			 : "memory")

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void sleep_ns(long ns)
{
	struct timespec t = { 0, ns };

	/* With the C library's function, a signal could end it early. */
	__atomic_fetch_add(&sleeps, 1, __ATOMIC_RELAXED);
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, &t);
}

__attribute__((noinline)) void nap(long ns)
{
	naps++;
	nap_least += ns;
	sleep_ns(ns);
	__asm__ volatile("");
}

__attribute__((noinline)) int recurse(int depth)
{
	int more = 0;

	calls++;
	if (depth)
		more = recurse(depth - 1) + 1;
	else
		sleep_ns(500000);
	__asm__ volatile("");
	return more;
}

__attribute__((noinline)) void jump(int back)
{
	if (back) {
		jumped++;
		longjmp(before, 1);
	}
	returned++;
	__asm__ volatile("");
}

__attribute__((noinline)) void request_start(long id)
{
	PROBE("request__start");
}

__attribute__((noinline)) void request_done(long id)
{
	PROBE("request__done");
}

/* Ends requests, in reverse order. */
static void *work(void *unused)
{
	char byte;
	long id;

	(void)unused;
	if (read(to_worker[0], &byte, 1) != 1)
		_exit(3);
	sleep_ns(2000000);
	for (id = REQUESTS; id > 0; id--)
		request_done(id);
	return NULL;
}

int main(void)
{
	static char buffer[4097];
	volatile int i;
	long id, begin;
	pthread_t worker;

	if (dup2(open("/dev/null", O_WRONLY), SINK) != SINK || pipe(to_worker))
		return 2;
	begin = now();
	for (i = 0; i < 10; i++)
		nap(1000000);
	nap_most = now() - begin;
	begin = now();
	for (i = 0; i < 20; i++)
		recurse(i % 8);
	outer_least = i * 500000L;
	whole_least = calls * 500000L;
	outer_most = now() - begin;
	for (i = 0; i < 30; i++)
		if (!setjmp(before))
			jump(i % 3 == 0);
	for (i = 0; i < 40; i++) {
		writes++;
		if (write(SINK, buffer, sizeof(buffer)) != sizeof(buffer))
			return 3;
	}
	pthread_create(&worker, NULL, work, NULL);
	begin = now();
	for (id = 1; id <= REQUESTS; id++) {
		requests++;
		request_start(id);
	}
	request_start(-1); /* has no end */
	unanswered++;
	request_least = requests * 2000000;
	if (write(to_worker[1], "", 1) != 1)
		return 3;
	pthread_join(worker, NULL);
	request_most = requests * (now() - begin);
	printf("sleeps %ld\nunanswered %ld\nnaps %ld\nnap_least %ld\nnap_most %ld\ncalls "
	       "%ld\nouter_least %ld\nouter_most %ld\nwhole_least %ld\nreturned %ld\njumped %ld\nwrites "
	       "%ld\nrequests %ld\nrequest_least %ld\nrequest_most %ld\n",
	       sleeps, unanswered, naps, nap_least, nap_most, calls, outer_least,
	       outer_most, whole_least, returned, jumped, writes, requests, request_least,
	       request_most);
	return 0;
}
