// A load with deep recursion: a few hundred different paths through mutually
// recursive functions that end with work of the program, libc and libstdc++. It is
// built twice, with and without frame pointers.
//
// Usage: recurse SECONDS
//
// Four times a second it prints the number of completed paths and its CPU time in
// ns.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr unsigned kFunctions = 8;
constexpr uint64_t kPaths = 200;

volatile uint64_t sink;

uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	return x;
}

// The ends of the paths.

[[gnu::noinline]] uint64_t arithmetic(uint64_t seed)
{
	for (int i = 0; i < 4000; i++)
		seed = mix(seed + i);
	return seed;
}

[[gnu::noinline]] uint64_t sorting(uint64_t seed)
{
	std::vector<uint64_t> values(300);
	for (auto &v : values)
		v = seed = mix(seed + 1);
	qsort(values.data(), values.size(), sizeof(values[0]), [](const void *a, const void *b) {
		auto x = *static_cast<const uint64_t *>(a), y = *static_cast<const uint64_t *>(b);
		return (x > y) - (x < y);
	});
	return values[150];
}

[[gnu::noinline]] uint64_t words(uint64_t seed)
{
	std::map<std::string, uint64_t> count;
	for (int i = 0; i < 60; i++) {
		seed = mix(seed + i);
		count["a rather long key " + std::to_string(seed % 40)] += seed;
	}
	return count.begin()->second;
}

uint64_t step(unsigned function, unsigned depth, uint64_t path);

// One of kFunctions functions that call each other in the order that path
// selects.
template <unsigned N> [[gnu::noinline]] uint64_t visit(unsigned depth, uint64_t path)
{
	uint64_t result;

	if (depth == 0)
		switch (path % 3) {
		case 0:
			return arithmetic(path);
		case 1:
			return sorting(path);
		default:
			return words(path);
		}
	result = step(mix(path + depth) % kFunctions, depth - 1, path);
	// Work after the call, so that it is not a tail call.
	sink = sink + N;
	return result + N;
}

uint64_t step(unsigned function, unsigned depth, uint64_t path)
{
	using visitor = uint64_t (*)(unsigned, uint64_t);
	static constexpr visitor visitors[kFunctions] = {
		visit<0>, visit<1>, visit<2>, visit<3>, visit<4>, visit<5>, visit<6>, visit<7>,
	};
	return visitors[function](depth, path);
}

} // namespace

int main(int argc, char **argv)
{
	using clock = std::chrono::steady_clock;
	auto now = clock::now(), told = now;
	auto end = now + std::chrono::seconds(argc > 1 ? atoi(argv[1]) : 1);

	for (uint64_t i = 0; now < end; i++) {
		uint64_t path = mix(i % kPaths);
		// Most programs' stacks are 10 to 40 frames deep.
		sink = sink + step(path % kFunctions, 5 + path % 20, path);
		now = clock::now();
		if (now - told > std::chrono::milliseconds(250)) {
			timespec used;
			clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
			printf("%llu %lld\n", (unsigned long long)i, used.tv_sec * 1000000000ll + used.tv_nsec);
			fflush(stdout);
			told = now;
		}
	}
	return 0;
}
