/*
 * Calls functions while it switches stacks, and leaves them without a return, as a command on
 * standard input says. It prints how many calls returned and how many were left, and bounds of the
 * time of the outermost calls that returned.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define COROUTINES 4
#define ROUNDS 100
#define DEPTH 3
#define STACK (64 << 10)

static long returned, left, inner, outer, cleaned;

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* A coroutine. If stacks are copied, all run on the first one's stack. */
static struct coroutine {
	ucontext_t context;
	char stack[STACK] __attribute__((aligned(16)));
	char *copy;
	size_t size;
	int done;
} coroutines[COROUTINES];

static ucontext_t scheduler;
static int current, copies;

static void yield(void)
{
	swapcontext(&coroutines[current].context, &scheduler);
}

/* The function that is measured. Other coroutines run during each of its recursive calls. */
__attribute__((noinline)) long step(int depth)
{
	volatile long begin = now();

	yield();
	if (depth > 1)
		step(depth - 1);
	yield();
	returned++;
	if (depth == DEPTH)
		inner += now() - begin;
	return depth;
}

static void run(void)
{
	volatile long begin;

	for (volatile int i = 0; i < ROUNDS; i++) {
		begin = now();
		step(DEPTH);
		outer += now() - begin;
	}
	coroutines[current].done = 1;
}

static char *stack_pointer(struct coroutine *c)
{
#if defined(__x86_64__)
	return (char *)c->context.uc_mcontext.gregs[REG_RSP];
#else
	return (char *)c->context.uc_mcontext.sp;
#endif
}

static void resume(struct coroutine *c)
{
	char *top = coroutines[0].stack + STACK;

	if (c->copy)
		memcpy(top - c->size, c->copy, c->size);
	swapcontext(&scheduler, &c->context);
	if (!copies || c->done)
		return;
	c->size = top - stack_pointer(c) + 128; /* with the red zone */
	c->copy = realloc(c->copy, c->size);
	memcpy(c->copy, top - c->size, c->size);
}

static void schedule(int copied)
{
	int i, runs = COROUTINES;

	copies = copied;
	for (i = 0; i < COROUTINES; i++) {
		struct coroutine *c = &coroutines[i];

		c->done = 0;
		free(c->copy);
		c->copy = NULL;
		getcontext(&c->context);
		c->context.uc_stack.ss_sp = copied ? coroutines[0].stack : c->stack;
		c->context.uc_stack.ss_size = STACK;
		c->context.uc_link = &scheduler;
	}
	/* makecontext() writes to the stack. */
	for (i = 0; i < COROUTINES; i++) {
		struct coroutine *c = &coroutines[i];

		current = i;
		makecontext(&c->context, run, 0);
		resume(c);
	}
	while (runs) {
		runs = 0;
		for (current = 0; current < COROUTINES; current++) {
			if (coroutines[current].done)
				continue;
			resume(&coroutines[current]);
			runs += !coroutines[current].done;
		}
	}
}

static sigjmp_buf target;

static void on_signal(int number)
{
	(void)number;
	left++;
	siglongjmp(target, 1);
}

/* Returns, or is left from a signal handler. */
__attribute__((noinline)) long leaves(int n)
{
	volatile char *room = alloca(16 * (n % 50 + 1));

	room[0] = 1;
	if (n % 3 == 0)
		raise(SIGUSR1);
	returned++;
	return room[0];
}

static int blocked[2];

static void clean(void *unused)
{
	(void)unused;
	cleaned++;
}

/* Its thread is cancelled in read(). */
__attribute__((noinline)) long waits(void)
{
	char c;
	long n;

	pthread_cleanup_push(clean, NULL);
	left += 2; /* read(), too */
	n = read(blocked[0], &c, 1);
	pthread_cleanup_pop(0);
	return n;
}

static void *cancelled(void *unused)
{
	(void)unused;
	waits();
	return NULL;
}

int main(int argc, char **argv)
{
	char command;

	if (argc < 2 || strcmp(argv[1], "serve") || pipe(blocked))
		return 1;
	signal(SIGUSR1, on_signal);
	while (read(0, &command, 1) == 1) {
		returned = left = inner = outer = cleaned = 0;
		if (command == 's' || command == 'c')
			schedule(command == 'c');
		for (volatile int n = 0; command == 'l' && n < 3 * ROUNDS; n++) {
			if (!sigsetjmp(target, 1))
				leaves(n);
		}
		for (int n = 0; command == 't' && n < ROUNDS; n++) {
			pthread_t thread;

			pthread_create(&thread, NULL, cancelled, NULL);
			pthread_cancel(thread);
			pthread_join(thread, NULL);
		}
		printf("returned %ld\nleft %ld\ninner %ld\nouter %ld\ncleaned %ld\nend 0\n",
		       returned, left, inner, outer, cleaned);
		fflush(stdout);
	}
	return 0;
}
