// SPDX-License-Identifier: Apache-2.0
/*
 * Divides its time 60 : 30 : 10 between three functions, one after the other:
 * a sampler that misses nothing is then off by a sample or two for each.
 */

static volatile unsigned long sink;

#define WORK(name)                                                                                 \
	__attribute__((noinline)) void name(unsigned long n)                                       \
	{                                                                                          \
		for (unsigned long i = 0; i < n; i++)                                              \
			sink = sink * 31 + i;                                                      \
	}

WORK(most)
WORK(some)
WORK(little)

int main(void)
{
	const unsigned long percent = 30000000;

	most(60 * percent);
	some(30 * percent);
	little(10 * percent);
	return 0;
}
