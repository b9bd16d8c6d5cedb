/* Calls the C library, which calls back: branches across files and .plt slots. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t compared;

static int compare(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;
	compared++;
	if (x < y)
		return -1;
	return x > y;
}

__attribute__((noinline)) static uint64_t fold(const int *v, int n)
{
	uint64_t sum = 0;
	for (int i = 0; i < n; i++) {
		if (v[i] & 1)
			sum = sum * 31 + v[i];
		else if (v[i] % 3 == 0)
			sum ^= v[i];
	}
	return sum;
}

int main(void)
{
	static char text[256];
	int v[16];
	for (uint32_t x = 1;;) {
		for (int i = 0; i < 16; i++)
			v[i] = (x = x * 1664525 + 1013904223) >> 8;
		qsort(v, 16, sizeof v[0], compare);
		text[fold(v, 16) % (sizeof text - 1)] = 'a' + compared % 26;
		if (strchr(text, 'q'))
			memset(text, 0, sizeof text);
	}
}
