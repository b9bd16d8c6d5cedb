/* Inlined functions in C, a cold path, and code that the linker may drop. */
struct pair {
	int a, b;
};

static volatile int sink;

static inline int add(struct pair p)
{
	return p.a + p.b;
}

static inline __attribute__((always_inline)) int clamp(int x)
{
	if (__builtin_expect(x > 100, 0)) {
		sink = x;
		return add((struct pair){100, x});
	}
	return x;
}

__attribute__((noinline)) int dropped(int x)
{
	return clamp(x) * 3;
}

int leaf(int x)
{
	int y = clamp(x);
	{
		int z = add((struct pair){x, y});
		for (int i = 0; i < z; i++)
			sink += clamp(i);
	}
	return y;
}
