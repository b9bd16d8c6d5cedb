// Runs in contexts of Boost, one of which starts the other.
#include <boost/context/fiber.hpp>

namespace context = boost::context;

static volatile unsigned sink;

__attribute__((noinline)) static void spin()
{
	for (unsigned i = 0; i < 100000; i++)
		sink = sink + i;
}

__attribute__((noinline)) static void work(unsigned depth)
{
	if (depth > 0)
		work(depth - 1);
	else
		spin();
	sink = sink + 1;
}

static context::fiber inner(context::fiber &&caller)
{
	for (;;) {
		work(5);
		caller = std::move(caller).resume();
	}
}

static context::fiber outer(context::fiber &&)
{
	context::fiber other(inner);

	for (;;) {
		work(2);
		other = std::move(other).resume();
	}
}

int main()
{
	context::fiber f(outer);

	std::move(f).resume();
}
