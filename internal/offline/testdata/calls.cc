// calls has functions that call each other, some of them inlined.

static volatile long sum;

static inline __attribute__((always_inline)) void add(long n)
{
	for (long i = 0; i < n; i++)
		sum += i;
}

namespace deep
{

__attribute__((noinline)) void leaf(long n)
{
	add(n);
	sum++;
}

__attribute__((noinline)) void middle(long n, const char *)
{
	add(n);
	leaf(n);
	sum++;
}

} // namespace deep

int main()
{
	for (int i = 0; i < 1000; i++) {
		deep::leaf(20000);
		deep::middle(20000, "");
	}
}
