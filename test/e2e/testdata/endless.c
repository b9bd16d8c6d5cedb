// SPDX-License-Identifier: Apache-2.0
/* Works in one function until its standard input ends. */
#include <poll.h>

static volatile unsigned long sink;

__attribute__((noinline)) void works(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sink = sink * 31 + i;
}

int main(void)
{
	struct pollfd in = { .fd = 0 };

	while (poll(&in, 1, 0) == 0)
		works(10000000);
	return 0;
}
