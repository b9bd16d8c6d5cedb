// SPDX-License-Identifier: Apache-2.0
/*
 * late LIBRARY: prints "ready", waits for a byte on its standard input, loads the library, and
 * works in it for 250 ms of CPU time, or for 500 ms on a busy machine. Then it prints "done"
 * and sleeps.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static long now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

int main(int argc, char **argv)
{
	void (*work)(void);
	void *library;
	long begin, used;

	(void)argc;
	puts("ready");
	fflush(stdout);
	getchar();
	library = dlopen(argv[1], RTLD_NOW);
	work = library ? (void (*)(void))dlsym(library, "work") : NULL;
	if (!work) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	begin = now(CLOCK_MONOTONIC);
	used = now(CLOCK_PROCESS_CPUTIME_ID);
	while (now(CLOCK_PROCESS_CPUTIME_ID) - used < 250000000 &&
	       now(CLOCK_MONOTONIC) - begin < 500000000)
		work();
	puts("done");
	fflush(stdout);
	pause();
	return 0;
}
