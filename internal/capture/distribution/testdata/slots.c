/* Prints the slot of each time in its input. */
#include <stdio.h>
#include "../../../../bpf/histogram.h"

int main(void)
{
	unsigned long long ns;

	while (scanf("%llu", &ns) == 1)
		printf("%u\n", histogram_slot(ns));
	return 0;
}
