// SPDX-License-Identifier: Apache-2.0
/*
 * Built as distributions build: without frame pointers. Works below recursion,
 * a virtual call, a call back from the C library and an exception's handler,
 * in two threads, for SECONDS.
 */
#include <chrono>
#include <cstdlib>
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

using Clock = std::chrono::steady_clock;

static void run(Clock::time_point end)
{
	Square square;

	while (Clock::now() < end)
		descend(20, square);
}

int main(int argc, char **argv)
{
	auto seconds = std::chrono::duration<double>(argc > 1 ? atof(argv[1]) : 3600);
	auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds);
	std::thread other(run, end);

	run(end);
	other.join();
}
