// A library whose code moves. Its stacks need unwind tables.
__attribute__((noinline)) static unsigned long moved_inner(unsigned long n)
{
	volatile unsigned long x = 0;
	for (unsigned long i = 0; i < n; i++)
		x += i;
	return x;
}

__attribute__((noinline)) unsigned long moved_outer(unsigned long n)
{
	unsigned long r = moved_inner(n);
	__asm__ volatile("" : "+r"(r));
	return r + 1;
}
