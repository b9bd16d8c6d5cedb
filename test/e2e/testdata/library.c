// SPDX-License-Identifier: Apache-2.0
/* A library with one function, FUNCTION, that work() calls. */

static volatile unsigned long sink;

__attribute__((noinline, visibility("hidden"))) void FUNCTION(void)
{
	for (unsigned long i = 0; i < 100000; i++)
		sink = sink * 31 + i;
}

void work(void)
{
	FUNCTION();
	sink = 0; /* so that the call above is not a tail call */
}
