// SPDX-License-Identifier: Apache-2.0
/*
 * plugins TURNS LIBRARY...: loads the libraries in turn, TURNS times each, one
 * in the other's place. The first works for 150 ms, each further one for as
 * much again. Prints for each turn the address of the library's code, the CPU
 * time in its function, in ns, and how often the CPU was left meanwhile.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static long cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
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
	 * New code is told apart from what was there before when the profiler
	 * has heard of it, which takes it some milliseconds. What this test is
	 * about comes after that.
	 */
	const struct timespec heard = { .tv_nsec = 400000000 };

	for (int turn = 0; turn < atoi(argv[1]) * (argc - 2); turn++) {
		int which = turn % (argc - 2);
		void *library = dlopen(argv[2 + which], RTLD_NOW);
		void (*work)(void) = library ? (void (*)(void))dlsym(library, "work") : NULL;
		long start, left;

		if (!work) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		nanosleep(&heard, NULL);
		left = switches();
		for (start = cpu_time(); cpu_time() - start < 150000000L * (which + 1);)
			work();
		printf("%p %ld %ld\n", (void *)work, cpu_time() - start, switches() - left);
		dlclose(library);
	}
	return 0;
}
