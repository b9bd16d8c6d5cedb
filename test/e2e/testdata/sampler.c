/*
 * Samples its own allocations while a profiler reads them: one of three, which stands for
 * three. It reports them by OpenTelemetry's probes for memory. For each r on standard input it
 * allocates memory, frees some of it, and prints the sums of its samples by function. For each
 * s it prints the semaphores of the probes.
 */
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

static struct account small, large;

__attribute__((noinline)) void *allocate(struct account *a, long size)
{
	static int turn;
	struct block *b = malloc(sizeof(*b) + size);

	if (!b)
		abort();
	b->sampled = NULL;
	b->size = size;
	if (alloc_semaphore && turn++ % EVERY == 0) {
		PROBE("alloc", WORD("0") " " WORD("1") " -" WORD("2"), "r"(b + 1), "r"(size),
		      "r"(EVERY * size));
		b->sampled = a;
		a->objects += EVERY;
		a->bytes += EVERY * size;
		a->live_objects += EVERY;
		a->live_bytes += EVERY * size;
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
			}
			PRINT(small);
			PRINT(large);
		} else if (command == 's') {
			printf("alloc %d\nfree %d\n", alloc_semaphore, free_semaphore);
		}
		printf("end 0\n");
		fflush(stdout);
	}
	return 0;
}
