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

// So little code could be any.
__asm__(".pushsection .text\n.set n, 0\n.rept 40000\n.set n, n + 1\n.long n * "
	"40503\n.endr\n.popsection");
