// SPDX-License-Identifier: Apache-2.0
/*
 * remaps churn: maps code, and replaces it by other code every millisecond,
 * forever. remaps many N: maps N pieces of code, none adjacent to another, and
 * works.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline)) void burn(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sink = sink * 31 + i;
}

static void *code(void *at, size_t size)
{
	void *p = mmap(at, size, PROT_READ | PROT_WRITE | PROT_EXEC,
		       MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return p;
}

int main(int argc, char **argv)
{
	const long page = sysconf(_SC_PAGESIZE);
	const struct timespec pause = { .tv_nsec = 300000 };

	if (argc > 2 && strcmp(argv[1], "many") == 0) {
		long n = atol(argv[2]);
		char *base = code(NULL, 2 * n * page);

		for (long i = 0; i < n; i++)
			if (mprotect(base + 2 * i * page, page, PROT_READ)) {
				perror("mprotect");
				return 1;
			}
	}
	puts("ready");
	fflush(stdout);
	for (unsigned i = 0;; i++) {
		burn(200000);
		if (strcmp(argv[1], "churn") == 0) {
			char *p = code(NULL, 4 * page);
			int file = open("/proc/self/exe", O_RDONLY);

			mmap(p + page, page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, 0);
			code(p + page, page);
			close(file);
			munmap(p, 4 * page);
			nanosleep(&pause, NULL);
		}
	}
}
