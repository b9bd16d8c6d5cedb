// SPDX-License-Identifier: Apache-2.0
/*
 * branches: takes branches that llvm-bolt can lay out better.
 *
 *	branches ROUNDS          for that many rounds, and prints the result
 *	branches                 for ever
 *	branches fork ROUNDS     in two children, one after the other
 *	branches load LIB ROUNDS in function work of a library, loaded by dlopen
 *
 * With -DLIBRARY it is such a library.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t work(uint64_t rounds);
volatile uint64_t result;

__attribute__((noinline)) static uint64_t unlikely(uint64_t x)
{
	return x ^ (x >> 7) * 77;
}

__attribute__((noinline)) uint64_t work(uint64_t rounds)
{
	uint64_t x = 1;

	while (rounds--) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		if (x >> 63) {
			x ^= x >> 11;
			if (x % 5 == 1)
				x = unlikely(x);
		} else if (x % 3 == 0) {
			x += 7;
		} else if (x % 1021 == 0) {
			x = unlikely(unlikely(x));
		}
	}
	return x;
}

#ifndef LIBRARY
static int in_child(uint64_t rounds)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return 1;
	if (pid == 0) {
		result = work(rounds);
		_exit(0);
	}
	return waitpid(pid, &status, 0) != pid || status != 0;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		result = work(UINT64_MAX);
	if (!strcmp(argv[1], "fork"))
		return in_child(strtoull(argv[2], NULL, 10)) || in_child(strtoull(argv[2], NULL, 10));
	if (!strcmp(argv[1], "load")) {
		const struct timespec later = { .tv_nsec = 300000000 };
		void *library;
		uint64_t (*loaded)(uint64_t);

		nanosleep(&later, NULL);
		library = dlopen(argv[2], RTLD_NOW);
		loaded = library ? (uint64_t (*)(uint64_t))dlsym(library, "work") : NULL;
		if (!loaded) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		result = loaded(strtoull(argv[3], NULL, 10));
		return 0;
	}
	printf("%llx\n", (unsigned long long)work(strtoull(argv[1], NULL, 10)));
	return 7;
}
#endif
