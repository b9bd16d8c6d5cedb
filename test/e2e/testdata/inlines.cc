// Spends its time in functions with two levels of inlining. The test depends on the
// line numbers.
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace app {

static inline unsigned mix(unsigned x) __attribute__((always_inline));
static inline unsigned mix(unsigned x)
{
	x ^= x << 13;
	x ^= x >> 17;
	return x ^ (x << 5);
}

template <class T> struct Box {
	std::vector<T> values;

	__attribute__((always_inline)) unsigned churn(unsigned x) const
	{
		for (const T &v : values)
			x = mix(x + v);
		return x;
	}
};

__attribute__((noinline)) unsigned work(const Box<int> &box, unsigned x)
{
	for (int i = 0; i < 1000; i++)
		x = box.churn(x);
	return x;
}

} // namespace app

int main(int argc, char **argv)
{
	app::Box<int> box;
	for (int i = 0; i < 1000; i++)
		box.values.push_back(i);
	unsigned x = argc;
	for (int i = 0; i < atoi(argv[1]); i++)
		x = app::work(box, x);
	printf("%u\n", x);
}
