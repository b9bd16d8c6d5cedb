/*
 * Frames of many pages, some of which nothing has touched. The stacks span at most 250 KB, of which
 * 60 KB are there.
 */
#include <stdlib.h>
#include <string.h>

static volatile unsigned sink;

static int compare(const void *a, const void *b)
{
	return (int)(*(const unsigned *)a & 0xffff) - (int)(*(const unsigned *)b & 0xffff);
}

static __attribute__((noinline)) void sort(unsigned n)
{
	unsigned v[64];

	for (unsigned i = 0; i < 64; i++)
		v[i] = (i + n) * 2654435761u;
	qsort(v, 64, sizeof(v[0]), compare);
	sink += v[n % 64];
}

/* A frame whose pages are all there. */
static __attribute__((noinline)) void full(unsigned n)
{
	char room[36000];

	memset(room, (int)n, sizeof(room));
	sort(n + room[n % sizeof(room)]);
	sink += room[n % 1000];
}

/* A frame of which one page is there. */
static __attribute__((noinline)) void untouched(unsigned n)
{
	char room[100000];

	room[n % 8] = (char)n;
	sort(n);
	full(n);
	sink += room[n % 8];
}

static __attribute__((noinline)) void small(unsigned n)
{
	char room[9000];

	room[n % 8] = (char)n;
	sort(n);
	untouched(n);
	sink += room[n % 8];
}

int main(void)
{
	for (unsigned n = 0;; n++) {
		sort(n);
		small(n);
	}
}
