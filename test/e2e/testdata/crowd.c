// SPDX-License-Identifier: Apache-2.0
/*
 * crowd N: N processes that sleep and one that works, until the first one's
 * standard input ends. It prints a line when all are running.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline)) void burn(void)
{
	for (unsigned long i = 0;; i++)
		sink = sink * 31 + i;
}

int main(int argc, char **argv)
{
	int sleepers = argc > 1 ? atoi(argv[1]) : 0;
	char byte;

	for (int i = 0; i <= sleepers; i++) {
		pid_t child = fork();

		if (child < 0) {
			perror("fork");
			return 1;
		}
		if (child > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (i == sleepers)
			burn();
		for (;;)
			pause();
	}
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
