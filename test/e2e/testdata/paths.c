/*
 * Does the same work on a few paths in turn. Each path is a chain of functions step_*
 * with others between them: sorting, searching, recursion, frames of variable size. The
 * argument is the number of turns.
 */
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile unsigned long sink;

NOINLINE static void step_leaf(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sink = sink * 31 + i;
}

/* It differs from turn to turn: the turns must not keep step with a sampling clock. */
static unsigned long work;

NOINLINE static int step_compare(const void *a, const void *b)
{
	step_leaf(work / 4);
	return *(const int *)a - *(const int *)b;
}

NOINLINE static void step_sort(void)
{
	int v[4] = { 2, 3, 1, 4 };

	qsort(v, 4, sizeof(v[0]), step_compare);
	sink += v[0];
}

NOINLINE static int step_probe(const void *key, const void *at)
{
	step_leaf(work / 2);
	return *(const int *)key - *(const int *)at;
}

NOINLINE static void step_search(void)
{
	static const int v[4] = { 1, 2, 3, 4 };
	int key = 2;

	sink += bsearch(&key, v, 4, sizeof(v[0]), step_probe) != NULL;
}

NOINLINE static void step_odd(int depth);

NOINLINE static void step_even(int depth)
{
	if (depth > 0)
		step_odd(depth - 1);
	else
		step_leaf(work);
	sink++;
}

NOINLINE static void step_odd(int depth)
{
	volatile char room[200];

	room[depth] = 1;
	step_even(depth - 1);
	sink += room[depth];
}

NOINLINE static void step_alloca(int size)
{
	char *room = __builtin_alloca(size);

	memset(room, size, size);
	step_leaf(work);
	sink += room[size / 2];
}

int main(int argc, char **argv)
{
	for (int turns = argc > 1 ? atoi(argv[1]) : 1; turns > 0; turns--) {
		work = 300000 + rand() % 200000;
		step_sort();
		step_search();
		step_even(20);
		step_alloca(1000 + turns % 7);
	}
}
