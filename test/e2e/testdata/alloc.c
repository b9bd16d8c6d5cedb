/*
 * Allocates memory by each function of malloc's family, frees some of it, and prints how
 * much each of its own functions allocated and leaked: objects and bytes. With the argument
 * "serve" it does so for each r on standard input, allocates much of two sizes for each m,
 * and prints the first bytes of malloc, calloc and free for each b.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 40

struct account {
	long objects, bytes, live_objects, live_bytes;
};

/* Shared with children. */
static struct accounts {
	struct account by_malloc, by_nothing, by_failure, by_calloc, by_realloc, by_shrinking,
		by_reallocarray;
	struct account by_posix_memalign, by_aligned_alloc, by_memalign, by_valloc, by_thread,
		by_child;
	struct account by_small, by_large;
} *accounts;

static void made(struct account *a, void *p, long size)
{
	if (!p)
		abort();
	memset(p, 1, size);
	a->objects++;
	a->bytes += size;
	a->live_objects++;
	a->live_bytes += size;
}

static void freed(struct account *a, long size)
{
	a->live_objects--;
	a->live_bytes -= size;
}

/* Frees two of three. */
static void drop(struct account *a, void *p, long size, int round)
{
	if (round % 3 == 0)
		return;
	free(p);
	freed(a, size);
}

/* A function that allocates size bytes with the expression how, in every round. */
#define ALLOCATES(name, length, how)                                                               \
	__attribute__((noinline)) void name(int round)                                             \
	{                                                                                          \
		struct account *a = &accounts->name;                                               \
		long size = (length);                                                              \
		void *p = (how);                                                                   \
		made(a, p, size);                                                                  \
		drop(a, p, size, round);                                                           \
	}

static void *stored(size_t alignment, size_t size)
{
	void *p;

	return posix_memalign(&p, alignment, size) ? NULL : p;
}

ALLOCATES(by_malloc, round * 100, malloc(size))
ALLOCATES(by_nothing, 0, malloc(size))
ALLOCATES(by_calloc, round * 9000, calloc(round, 9000))
ALLOCATES(by_reallocarray, round * 50, reallocarray(NULL, round, 50))
ALLOCATES(by_posix_memalign, round * 10, stored(round % 2 ? 16 : 4096, size))
ALLOCATES(by_aligned_alloc, round * 64, aligned_alloc(64, size))
ALLOCATES(by_memalign, round * 5, memalign(8, size))
ALLOCATES(by_valloc, round * 7, valloc(size))
ALLOCATES(by_thread, round * 20, malloc(size))
ALLOCATES(by_child, round * 30, calloc(round, 30))

/* Each call is a new allocation, and frees the old one. */
__attribute__((noinline)) void by_realloc(int round)
{
	struct account *a = &accounts->by_realloc;
	void *p = realloc(NULL, round);

	made(a, p, round);
	p = realloc(p, round * 4000);
	made(a, p, round * 4000);
	freed(a, round);
	drop(a, p, round * 4000, round);
}

__attribute__((noinline)) void by_shrinking(int round)
{
	struct account *a = &accounts->by_shrinking;
	void *p = malloc(round * 10);

	made(a, p, round * 10);
	p = realloc(p, round);
	made(a, p, round);
	freed(a, round * 10);
	if (round % 2 == 0) {
		p = realloc(p, 0);
		freed(a, round);
	}
}

static volatile size_t too_much = PTRDIFF_MAX;

/* Sizes for sampling, the larger one above the rate. */
ALLOCATES(by_small, 300, malloc(size))
ALLOCATES(by_large, 1500, malloc(size))

/* What fails does not count, and does not free the old memory. */
__attribute__((noinline)) void by_failure(int round)
{
	struct account *a = &accounts->by_failure;
	void *volatile p = malloc(round);

	made(a, p, round);
	if (malloc(too_much) || realloc(p, too_much) || calloc(too_much, 4))
		abort();
}

static void *thread(void *unused)
{
	for (int round = 1; round <= ROUNDS; round++)
		by_thread(round);
	return unused;
}

/* A child allocates and leaks, and frees its copy of its parent's memory. */
static void fork_child(void)
{
	void *copied = malloc(100);
	pid_t child = fork();

	if (child == 0) {
		free(copied);
		for (int round = 1; round <= ROUNDS; round++)
			by_child(round);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static void run(void)
{
	pthread_t threads[2];

	for (int round = 1; round <= ROUNDS; round++) {
		by_malloc(round);
		by_nothing(round);
		by_failure(round);
		by_calloc(round);
		by_realloc(round);
		by_shrinking(round);
		by_reallocarray(round);
		by_posix_memalign(round);
		by_aligned_alloc(round);
		by_memalign(round);
		by_valloc(round);
	}
	for (int i = 0; i < 2; i++) { /* one after the other: they share the account */
		pthread_create(&threads[i], NULL, thread, NULL);
		pthread_join(threads[i], NULL);
	}
	fork_child();
}

#define PRINT(name)                                                                                \
	printf(#name "_objects %ld\n" #name "_bytes %ld\n" #name "_live_objects %ld\n" #name       \
		     "_live_bytes %ld\n",                                                          \
	       accounts->name.objects, accounts->name.bytes, accounts->name.live_objects,          \
	       accounts->name.live_bytes)

static void report(void)
{
	PRINT(by_malloc);
	PRINT(by_nothing);
	PRINT(by_failure);
	PRINT(by_calloc);
	PRINT(by_realloc);
	PRINT(by_shrinking);
	PRINT(by_reallocarray);
	PRINT(by_posix_memalign);
	PRINT(by_aligned_alloc);
	PRINT(by_memalign);
	PRINT(by_valloc);
	PRINT(by_thread);
	PRINT(by_child);
}

static long first_bytes(void *code)
{
	unsigned bytes;

	memcpy(&bytes, code, sizeof(bytes));
	return bytes;
}

int main(int argc, char **argv)
{
	char command;

	accounts = mmap(NULL, sizeof(*accounts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (argc < 2) {
		run();
		report();
		return 0;
	}
	while (read(0, &command, 1) == 1) {
		if (command == 'r') {
			run();
			report();
		} else if (command == 'm') {
			for (int round = 1; round <= 5000; round++) {
				by_small(round);
				by_large(round);
			}
			PRINT(by_small);
			PRINT(by_large);
		} else if (command == 'b') {
			printf("malloc %ld\ncalloc %ld\nfree %ld\n", first_bytes(malloc),
			       first_bytes(calloc), first_bytes(free));
		}
		printf("end 0\n");
		fflush(stdout);
	}
	return strcmp(argv[1], "serve") != 0;
}
