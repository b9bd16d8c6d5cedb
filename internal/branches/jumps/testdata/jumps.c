/*
 * Takes jumps with known shares, until it is killed: quarter() takes one way in every
 * fourth call, choose() each of eight ways in turn, and call() calls each of four functions
 * in turn. The argument selects the mode:
 * "threads" runs two threads, "fork" lets children do it, "exec" executes itself again
 * and again, and "dlopen" FILE loads and unloads a library. It ends with SIGABRT if
 * anything is wrong.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

volatile unsigned long rounds;

__attribute__((noinline)) void quarter(unsigned long i, volatile unsigned long *to)
{
	if (i % 4 == 0)
		__asm__ volatile("nop");
	else
		*to += i;
}

__attribute__((noinline)) void choose(unsigned long i, volatile unsigned long *to)
{
	switch (i % 8) {
	case 0: __asm__ volatile("nop; nop"); break;
	case 1: *to += 2; break;
	case 2: *to -= 3; break;
	case 3: *to ^= 4; break;
	case 4: *to |= 5; break;
	case 5: *to &= ~6UL; break;
	case 6: *to *= 7; break;
	case 7: *to = i; break;
	}
}

__attribute__((noinline)) void callee0(volatile unsigned long *to) { *to += 1; }
__attribute__((noinline)) void callee1(volatile unsigned long *to) { *to += 2; }
__attribute__((noinline)) void callee2(volatile unsigned long *to) { *to += 3; }
__attribute__((noinline)) void callee3(volatile unsigned long *to) { *to += 4; }

static void (*volatile callees[4])(volatile unsigned long *) = { callee0, callee1, callee2, callee3 };

__attribute__((noinline)) void call(unsigned long i, volatile unsigned long *to)
{
	callees[i % 4](to);
	__asm__ volatile("nop"); /* not a tail call */
}

static void some(unsigned long n)
{
	volatile unsigned long to = 0, sum = 0;
	unsigned long want = 0, i;

	for (i = 0; i < n; i++) {
		quarter(i, &sum);
		choose(i, &to);
		call(i, &to);
		if (i % 4 != 0)
			want += i;
	}
	if (sum != want)
		abort();
}

static void *forever(void *unused)
{
	for (;;) {
		some(100000);
		rounds++;
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int status;

	if (!strcmp(mode, "threads")) {
		pthread_t thread;

		pthread_create(&thread, NULL, forever, NULL);
		forever(NULL);
	}
	if (!strcmp(mode, "exec")) {
		some(100000);
		execv("/proc/self/exe", argv);
	}
	while (!strcmp(mode, "fork")) {
		if (fork() == 0) {
			some(100000);
			_exit(0);
		}
		some(50000);
		rounds++;
		if (wait(&status) < 0 || status)
			abort();
	}
	while (!strcmp(mode, "dlopen")) {
		void *library = dlopen(argv[2], RTLD_NOW);
		void (*step)(unsigned long, volatile unsigned long *) = dlsym(library, "step");
		volatile unsigned long to = 0;

		for (unsigned long i = 0; i < 100000; i++)
			step(i, &to);
		dlclose(library);
		rounds++;
	}
	abort();
}
