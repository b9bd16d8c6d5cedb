// SPDX-License-Identifier: Apache-2.0
/*
 * Built without frame pointers, as distributions build programs. Works below
 * recursion, a virtual call, a callback from the C library and an exception
 * handler, in two threads, for SECONDS of CPU time each.
 */
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <thread>

static volatile unsigned long sink;

extern "C" __attribute__((noinline)) int compare(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	for (int i = 0; i < 20; i++)
		sink = sink * 31 + x;
	return (x > y) - (x < y);
}

struct Shape {
	virtual ~Shape() = default;
	virtual void work(int seed) = 0;
};

struct Square : Shape {
	int values[500];

	void work(int seed) override
	{
		for (int i = 0; i < 500; i++)
			values[i] = (i * 7919 + seed) % 503;
		qsort(values, 500, sizeof(values[0]), compare);
	}
};

__attribute__((noinline)) static int descend(int depth, Shape &shape)
{
	char frame[48];

	for (char &c : frame)
		c = depth;
	if (depth == 0) {
		try {
			if (sink != 1)
				throw std::runtime_error("thrown on purpose");
		} catch (const std::exception &) {
			shape.work(frame[3]);
		}
		return 1;
	}
	int below = descend(depth - 1, shape) + frame[sink % sizeof(frame)];

	sink = below;
	return below;
}

static double cpu_time()
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void run(double seconds)
{
	Square square;

	while (cpu_time() < seconds)
		descend(20, square);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 3600;
	std::thread other(run, seconds);

	run(seconds);
	other.join();
}
