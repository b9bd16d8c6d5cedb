// SPDX-License-Identifier: Apache-2.0
/*
 * image TURNS OTHER: does WORK parts of work in the function called FUNCTION,
 * then becomes the program OTHER, which does likewise, TURNS times in all.
 * Programs that differ in FUNCTION and WORK alone have the same addresses.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline)) void FUNCTION(void)
{
	for (unsigned long i = 0; i < WORK * 1000000UL; i++)
		sink = sink * 31 + i;
}

int main(int argc, char **argv)
{
	char turns[16];
	int left = argc > 1 ? atoi(argv[1]) - 1 : 0;

	FUNCTION();
	if (left <= 0)
		return 0;
	snprintf(turns, sizeof(turns), "%d", left);
	execl(argv[2], argv[2], turns, argv[0], (char *)0);
	return 1;
}
