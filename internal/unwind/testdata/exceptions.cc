// Exceptions that unwind deep stacks, so that the unwinder is among the frames.
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

static volatile unsigned sink;

struct Guard {
	~Guard() { sink = sink + 1; }
};

__attribute__((noinline)) static void fall(unsigned depth)
{
	Guard guard;

	if (depth == 0)
		throw std::runtime_error("bottom " + std::to_string(sink));
	fall(depth - 1);
	sink = sink + 1;
}

__attribute__((noinline)) static void turn(unsigned n)
{
	std::map<std::string, unsigned> seen;

	for (unsigned i = 0; i < 50; i++)
		seen["key " + std::to_string((i * n) % 37)]++;
	try {
		fall(n % 30);
	} catch (const std::exception &e) {
		sink = sink + e.what()[7] + seen.size();
	}
}

int main()
{
	auto loop = [] {
		for (unsigned n = 0;; n++)
			turn(n);
	};
	std::thread other(loop);
	loop();
}
