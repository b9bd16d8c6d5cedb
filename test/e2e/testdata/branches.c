// SPDX-License-Identifier: Apache-2.0
/*
 * branches: takes branches that llvm-bolt can lay out better.
 *
 *	branches ROUNDS          for that many rounds, and prints the result
 *	branches                 forever
 *	branches fork            in two children, one after the other, until each
 *	                         has been traced a hundred times
 *	branches load LIB ROUNDS in function work of a library, loaded by dlopen
 *
 * With -DLIBRARY, it is compiled as such a library.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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
static int is_traced(pid_t pid)
{
	char line[256];
	int tracer = 0;
	FILE *status;

	snprintf(line, sizeof(line), "/proc/%d/status", pid);
	status = fopen(line, "r");
	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "TracerPid: %d", &tracer) == 1)
			break;
	if (status)
		fclose(status);
	return tracer != 0;
}

static int in_child(void)
{
	const struct timespec millisecond = { .tv_nsec = 1000000 };
	pid_t pid = fork();
	int status, traced = 0;

	if (pid < 0)
		return 1;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		result = work(UINT64_MAX);
	}
	while (traced < 100) {
		nanosleep(&millisecond, NULL);
		traced += is_traced(pid);
	}
	kill(pid, SIGTERM);
	return waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) ||
	       WTERMSIG(status) != SIGTERM;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		result = work(UINT64_MAX);
	if (!strcmp(argv[1], "fork"))
		return in_child() || in_child();
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
