// Functions whose frames differ, for the analysis of code: TestCodeOfARM64 compares it with the
// compilers' call frame information.
#include <alloca.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void use(void *p)
{
	__asm__ volatile("" : : "r"(p) : "memory");
}

int leaf(int a, int b)
{
	return a * b + (a ^ b);
}

int variable(int n)
{
	char b[n];

	use(b);
	if (n > 3) {
		char c[n * 2];

		use(c);
	}
	return b[0];
}

int large(void)
{
	char b[100000];

	use(b);
	return b[5];
}

int allocates(int n)
{
	char b[70000];

	use(b);
	use(alloca(n));
	return b[5];
}

int aligned(int n)
{
	_Alignas(128) char b[256];

	use(b);
	use(alloca(n));
	return b[1];
}

int switches(int x, int y)
{
	switch (x) {
	case 0:
		return y + 3;
	case 1:
		return y * 7;
	case 2:
		use(&y);
		return y;
	case 3:
		return y / 3;
	case 4:
		abort();
	case 5:
		return rand();
	case 6:
		return y ^ rand();
	case 9:
		use(&x);
		return x - y;
	default:
		return -1;
	}
}

int returns_early(int *p)
{
	int s = 0;

	if (!p)
		return 0;
	for (int i = 0; p[i]; i++) {
		use(p);
		s += rand() % p[i];
	}
	return s;
}

int calls_last(int x)
{
	if (x & 1)
		return switches(x, 3);
	use(&x);
	return returns_early(&x);
}

__attribute__((noreturn)) void die(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	exit(1);
}

int checks(int a, int b)
{
	int x;

	if (a > 10)
		die("a %d", a);
	if (b > 10)
		die("b %d", b);
	x = rand();
	if (x < 0)
		abort();
	return a + b + x;
}

double floats(double a, double b, double c)
{
	double r = a;

	for (int i = 0; i < 100; i++) {
		use(&r);
		r = r * b + c / a;
	}
	return r;
}

int many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j)
{
	use(&a);
	return a + b + c + d + e + f + g + h + i + j;
}

int calls_many(int x)
{
	return many(1, 2, 3, 4, 5, 6, 7, 8, x, 10) + many(x, 2, 3, 4, x, 6, 7, 8, 9, 10);
}

struct wide {
	long a[50];
};

struct wide returns_wide(int x)
{
	struct wide w;

	memset(&w, x, sizeof(w));
	use(&w);
	return w;
}

long takes_wide(struct wide w)
{
	use(&w);
	return w.a[3];
}

long both(int x)
{
	return takes_wide(returns_wide(x)) + takes_wide(returns_wide(x + 1));
}

int main(int argc, char **argv)
{
	(void)argv;
	return leaf(argc, 3) + variable(argc) + large() + allocates(argc) + aligned(argc) +
	       switches(argc, 2) + calls_last(argc) + checks(argc, 2) + (int)floats(argc, 2, 3) +
	       calls_many(argc) + (int)both(argc);
}
