/*
 * Samples its own allocations while a profiler reads them: one of three, which stands for
 * three. It reports them by OpenTelemetry's probes for memory. For each r on standard input it
 * allocates memory, frees some of it, and prints the sums of its samples by function. For a t,
 * it allocates memory before and after its first report, and prints the sums if functions
 * count the allocations before. For each s it prints the semaphores of the probes.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define EVERY 3

/* Count the users of the probes; see sys/sdt.h of SystemTap. */
__attribute__((section(".probes"), used)) volatile unsigned short alloc_semaphore, free_semaphore;

#define PROBE(name, operands, ...)                                                                 \
	__asm__ volatile("990: nop\n"                                                              \
			 ".pushsection .note.stapsdt,\"\",\"note\"\n"                              \
			 ".balign 4\n"                                                             \
			 ".4byte 992f-991f, 994f-993f, 3\n"                                        \
			 "991: .asciz \"stapsdt\"\n"                                               \
			 "992: .balign 4\n"                                                        \
			 "993: .8byte 990b, 0, " name "_semaphore\n"                               \
			 ".asciz \"otel_memory\"\n.asciz \"" name "\"\n.asciz \"" operands "\"\n"  \
			 "994: .balign 4\n"                                                        \
			 ".popsection" ::__VA_ARGS__                                               \
			 : "memory")

/* The place of an operand, a word. */
#define WORD(n) "8@%" n

struct account {
	long objects, bytes, live_objects, live_bytes;
};

/* The header of a block. */
struct block {
	struct account *sampled; /* NULL if it was not */
	long size;
};

static struct account small, large, fraction;

/* Makes compilers set up a frame, which leaf functions need not have. */
static void *volatile frame;

/* Reports a sample, which stands for an amount of bytes. */
__attribute__((noinline)) void report(void *p, long size, long bytes)
{
	frame = __builtin_frame_address(0);
	PROBE("alloc", WORD("0") " " WORD("1") " -" WORD("2"), "r"(p), "r"(size), "r"(bytes));
}

static void made(struct account *a, long objects, long bytes)
{
	a->objects += objects;
	a->bytes += bytes;
	a->live_objects += objects;
	a->live_bytes += bytes;
}

__attribute__((noinline)) void *allocate(struct account *a, long size)
{
	static int turn;
	struct block *b = malloc(sizeof(*b) + size);

	if (!b)
		abort();
	b->sampled = NULL;
	b->size = size;
	if (alloc_semaphore && turn++ % EVERY == 0) {
		report(b + 1, size, EVERY * size);
		b->sampled = a;
		made(a, EVERY, EVERY * size);
	}
	return b + 1;
}

__attribute__((noinline)) void release(void *p)
{
	struct block *b = (struct block *)p - 1;

	if (b->sampled) {
		PROBE("free", WORD("0"), "r"(p));
		b->sampled->live_objects -= EVERY;
		b->sampled->live_bytes -= EVERY * b->size;
	}
	free(b);
}

/* Each function allocates in every round, and frees half. */
#define ALLOCATES(name, size)                                                                      \
	__attribute__((noinline)) void by_##name(int round)                                        \
	{                                                                                          \
		void *p = allocate(&name, size);                                                   \
		if (round % 2)                                                                     \
			release(p);                                                                \
	}

ALLOCATES(small, 8 + round)
ALLOCATES(large, 5000 * round)

/* Reports each block, which stands for two and a half. The sums have the number of samples. */
__attribute__((noinline)) void by_fraction(void)
{
	void *p = malloc(10);

	if (!alloc_semaphore)
		return;
	report(p, 10, 25);
	made(&fraction, 1, 25);
}

/* The sums of functions that allocate before the first report, at it, and around it. */
static struct account kept, first, thread;

__attribute__((noinline)) void *by_kept(void)
{
	made(&kept, 1, 1000);
	return malloc(1000);
}

__attribute__((noinline)) void by_first(void)
{
	report(malloc(100), 100, EVERY * 100);
	made(&first, 1, 100);
}

static pthread_barrier_t barrier;

/* Its first allocation precedes the first report, and its second one follows. */
__attribute__((noinline)) void *by_thread(void *unused)
{
	void *p = malloc(70);

	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	report(p, 70, EVERY * 70);
	made(&thread, 1, 70);
	report(malloc(80), 80, EVERY * 80);
	made(&thread, EVERY, EVERY * 80);
	return unused;
}

static void take_over(void)
{
	pthread_t t;
	void *p = by_kept();

	if (pthread_barrier_init(&barrier, NULL, 2) || pthread_create(&t, NULL, by_thread, NULL))
		abort();
	pthread_barrier_wait(&barrier);
	by_first();
	pthread_barrier_wait(&barrier);
	pthread_join(t, NULL);
	p = realloc(p, 2000);
	kept.live_objects--;
	kept.live_bytes -= 1000;
	report(p, 1L << 60, 1L << 60); /* impossible */
}

#define PRINT(name)                                                                                \
	printf("by_" #name "_objects %ld\nby_" #name "_bytes %ld\nby_" #name                       \
	       "_live_objects %ld\nby_" #name "_live_bytes %ld\n",                                 \
	       name.objects, name.bytes, name.live_objects, name.live_bytes)

int main(int argc, char **argv)
{
	char command;

	(void)argv;
	while (argc > 1 && read(0, &command, 1) == 1) {
		if (command == 'r') {
			for (int round = 0; round < 100; round++) {
				by_small(round);
				by_large(round);
				by_fraction();
			}
			PRINT(small);
			PRINT(large);
			PRINT(fraction);
		} else if (command == 't') {
			take_over();
			PRINT(kept);
			PRINT(first);
			PRINT(thread);
		} else if (command == 's') {
			printf("alloc %d\nfree %d\n", alloc_semaphore, free_semaphore);
		}
		printf("end 0\n");
		fflush(stdout);
	}
	return 0;
}
