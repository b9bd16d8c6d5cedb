// SPDX-License-Identifier: Apache-2.0
/*
 * plugins TURNS LIBRARY...: loads the libraries in turn, TURNS times each, at the
 * same address. The first works for 150 ms, each further one for 150 ms longer.
 * Prints for each turn the CPU time in the library's function and the elapsed time,
 * both in ns, and the number of context switches meanwhile.
 *
 * It waits for a byte on its standard input before it loads a library and, after it
 * has printed the address of the library's code, before it works. If there is none, it
 * waits for 400 ms before it works.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static long now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

static long switches(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return r.ru_nvcsw + r.ru_nivcsw;
}

int main(int argc, char **argv)
{
	/*
	 * The profiler takes a few milliseconds to learn about new code. These tests
	 * are about the time after that.
	 */
	const struct timespec heard = { .tv_nsec = 400000000 };

	for (int turn = 0; turn < atoi(argv[1]) * (argc - 2); turn++) {
		int which = turn % (argc - 2);
		void (*work)(void);
		void *library;
		long begin, start, left;

		getchar();
		library = dlopen(argv[2 + which], RTLD_NOW);
		work = library ? (void (*)(void))dlsym(library, "work") : NULL;
		if (!work) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		if (!feof(stdin)) {
			printf("%p\n", (void *)work);
			fflush(stdout);
			getchar();
		}
		if (feof(stdin))
			nanosleep(&heard, NULL);
		left = switches();
		begin = now(CLOCK_MONOTONIC);
		start = now(CLOCK_PROCESS_CPUTIME_ID);
		while (now(CLOCK_PROCESS_CPUTIME_ID) - start < 150000000L * (which + 1))
			work();
		printf("%ld %ld %ld\n", now(CLOCK_PROCESS_CPUTIME_ID) - start,
		       now(CLOCK_MONOTONIC) - begin, switches() - left);
		fflush(stdout);
		dlclose(library);
	}
	return 0;
}
