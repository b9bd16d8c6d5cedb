/*
 * Calls handle(), which waits, and returns or is left: by an exception, by the end of its thread, or by the execution
 * of another program, /proc/self/exe with an argument. Prints its own account of the calls. Each time has two bounds,
 * read outside and inside of what it measures.
 */
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum kind { RETURN, THROW, EXIT, EXEC };

static long long now()
{
	timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long inside;

extern "C" __attribute__((noinline, noclone)) void handle(kind kind)
{
	long long before = now();
	timespec t = { 0, 20000000 };

	nanosleep(&t, nullptr);
	switch (kind) {
	case THROW:
		throw 1;
	case EXIT:
		pthread_exit(nullptr);
	case EXEC:
		execl("/proc/self/exe", "slowleft", "exit", nullptr);
		_exit(2);
	case RETURN:
		break;
	}
	inside = now() - before;
}

/* Deeper on the stack, so that the calls have different places. */
__attribute__((noinline, noclone)) static int caught(int depth)
{
	volatile char frame[64];

	frame[0] = depth;
	if (depth > 0)
		return caught(depth - 1) + frame[0] - depth;
	try {
		handle(THROW);
	} catch (int n) {
		return n;
	}
	return 0;
}

static void *ends(void *)
{
	handle(EXIT);
	return nullptr;
}

int main(int argc, char **)
{
	int returned = 0, left = 0;
	long long least = 0, most = 0, longest = 0;

	if (argc > 1)
		return 0;
	for (int i = 0; i < 10; i++) {
		long long before = now(), outside;
		pthread_t thread;
		pid_t child;

		handle(RETURN);
		outside = now() - before;
		least += inside;
		most += outside;
		longest = outside > longest ? outside : longest;
		returned++;
		left += caught(i % 3);
		if (i % 2 == 0)
			continue;
		if (pthread_create(&thread, nullptr, ends, nullptr) || pthread_join(thread, nullptr))
			return 3;
		left++;
		child = fork();
		if (child == 0)
			handle(EXEC);
		if (child < 0 || waitpid(child, nullptr, 0) != child)
			return 4;
		left++;
	}
	printf("returned %d\nleft %d\nleast_time %lld\nmost_time %lld\nlongest %lld\n", returned, left, least, most, longest);
	return 0;
}
