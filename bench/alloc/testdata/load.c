/*
 * Allocates and frees memory a number of times, with 64 blocks of 16 to 1039 bytes in use. It
 * prints its CPU time in ns. Given the name of a function, malloc or free, it first waits until
 * that function has a breakpoint.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIVE 64
#define DEPTH 10 /* calls around each allocation */

static void *live[LIVE];
static volatile int sink;

__attribute__((noinline)) static void *allocate(int depth, size_t size)
{
	void *block = depth ? allocate(depth - 1, size) : malloc(size);

	sink++; /* no tail call */
	return block;
}

static long cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

int main(int argc, char **argv)
{
	unsigned int random = 1;
	long begin, i, count;

	if (argc < 2)
		return 2;
	count = atol(argv[1]);
	if (argc > 2) {
		volatile unsigned char *code =
			(unsigned char *)(strcmp(argv[2], "free") ? (void *)malloc : (void *)free);
		unsigned char before = *code;

		while (*code == before)
			usleep(1000);
		sleep(1); /* the tool may not be ready */
	}
	begin = cpu_time();
	for (i = 0; i < count; i++) {
		char **block = (char **)&live[i % LIVE];

		random = random * 1103515245 + 12345;
		free(*block);
		*block = allocate(DEPTH, 16 + (random >> 16) % 1024);
		**block = 1;
	}
	printf("%ld\n", cpu_time() - begin);
	return 0;
}
