/* Deep stacks with the C library among their frames. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile unsigned sink;

static int compare(const void *a, const void *b)
{
	char x[32], y[32];

	snprintf(x, sizeof(x), "%f", (double)*(const unsigned *)a);
	snprintf(y, sizeof(y), "%f", (double)*(const unsigned *)b);
	return strcmp(x, y);
}

static __attribute__((noinline)) void sort(unsigned n)
{
	unsigned v[64];

	for (unsigned i = 0; i < 64; i++)
		v[i] = (i + n) * 2654435761u;
	qsort(v, 64, sizeof(v[0]), compare);
	sink += v[n % 64];
}

/* A frame with a variable array and one that is aligned more than the stack. */
static __attribute__((noinline)) void aligned(unsigned n)
{
	unsigned small[n % 32 + 1];
	unsigned large[16] __attribute__((aligned(64)));

	memset(small, n, sizeof(small));
	memset(large, n, sizeof(large));
	sort(n + small[0] + large[n % 16]);
	sink += small[n % (n % 32 + 1)] + large[3];
}

/* A frame of more than a page. */
static __attribute__((noinline)) void big(unsigned n)
{
	char room[300000];

	memset(room + n % 1000, (int)n, 5000);
	aligned(n + room[n % 1000]);
	sink += room[n % 1000 + 4];
}

__attribute__((noinline)) void recurse(unsigned depth, unsigned n)
{
	if (depth == 0)
		big(n);
	else
		recurse(depth - 1, n + 1);
	sink++;
}

int main(void)
{
	for (unsigned n = 0;; n++)
		recurse(n % 20, n);
}
