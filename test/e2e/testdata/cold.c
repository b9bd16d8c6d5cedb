/*
 * Calls a function whose rarely executed part the compiler puts elsewhere, as a symbol of its
 * own.
 */
#include <stdio.h>
#include <stdlib.h>

volatile long sum;

__attribute__((noinline, cold)) void rare(volatile long *words)
{
	sum += words[0];
}

__attribute__((noinline)) void work(int n)
{
	volatile long words[8] = { n };

	sum += words[0];
	if (__builtin_expect(n & 1, 0)) {
		rare(words);
		sum += words[7];
		rare(words);
	}
	sum += words[1];
}

__attribute__((noinline)) void caller(int n)
{
	work(n);
	sum++;
}

int main(void)
{
	for (int i = 0; i < 100; i++)
		caller(i);
	printf("works 100\nend 0\n");
	return 0;
}
