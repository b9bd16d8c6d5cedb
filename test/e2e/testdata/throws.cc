/*
 * Calls functions that exceptions leave, for each r on standard input. It prints how many calls
 * there were, how many returned, and the sum of what they returned.
 */
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <unistd.h>

static long calls, returned, sum, depth, failures;

/* Throws on each third call. */
__attribute__((noinline)) int work(int n)
{
	calls++;
	if (n % 3 == 0)
		throw std::runtime_error("third");
	return 2 * n;
}

/* An exception passes through it. */
extern "C" __attribute__((noinline)) int middle(int n)
{
	return work(n) + 1;
}

/* An exception leaves some of the recursive calls. */
extern "C" __attribute__((noinline)) int recurse(int n)
{
	depth++;
	if (n == 0)
		throw std::runtime_error("end");
	try {
		return recurse(n - 1) + 1;
	} catch (const std::exception &) {
		if (n % 2)
			throw;
		return n;
	}
}

/* Ends with a call of work. */
extern "C" __attribute__((noinline)) int last(int n)
{
	return work(n);
}

/* Also ends with a call of work. It returns from where exceptions may have left last. */
extern "C" __attribute__((noinline)) int other(int n)
{
	return work(n);
}

static void last_then_other(int n)
{
	try {
		last(n);
	} catch (const std::exception &) {
		failures++;
		other(n + 1);
	}
}

int main(int argc, char **argv)
{
	char command;

	if (argc < 2 || strcmp(argv[1], "serve"))
		return 1;
	while (read(0, &command, 1) == 1) {
		calls = returned = sum = depth = failures = 0;
		for (int n = 0; n < 300; n++) {
			try {
				sum += middle(n);
				returned++;
			} catch (const std::exception &) {
			}
			last_then_other(n);
			recurse(6);
		}
		printf("calls %ld\nreturned %ld\nsum %ld\ndepth %ld\nend 0\n", calls - failures,
		       returned, sum, depth);
		fflush(stdout);
	}
	return 0;
}
