// A program with virtual calls, loops, inlined and recursive functions, and templates. It
// includes nothing, so that it compiles fast.
extern "C" int printf(const char *, ...);
extern "C" int atoi(const char *);

struct Shape {
	virtual double area() const = 0;
};
struct Circle : Shape {
	double r;
	double area() const override
	{
		return 3.14 * r * r;
	}
};
struct Square : Shape {
	double s;
	double area() const override
	{
		return s * s;
	}
};

struct Less {
	int key;
	bool operator()(int a, int b) const
	{
		return (a ^ key) < (b ^ key);
	}
};

template <class T> void swap(T &a, T &b)
{
	T c = a;
	a = b;
	b = c;
}

// sort is quicksort, or insertion sort for a few.
template <class T, class Before> void sort(T *begin, T *end, Before before)
{
	if (end - begin < 8) {
		for (T *p = begin; p < end; p++)
			for (T *q = p; q > begin && before(*q, q[-1]); q--)
				swap(*q, q[-1]);
		return;
	}
	T pivot = begin[(end - begin) / 2];
	T *low = begin, *high = end - 1;
	while (low <= high) {
		while (before(*low, pivot))
			low++;
		while (before(pivot, *high))
			high--;
		if (low <= high)
			swap(*low++, *high--);
	}
	sort(begin, high + 1, before);
	sort(low, end, before);
}

static inline int mix(int a, int b)
{
	return a & 1 ? a * 31 + b : a / 2 - b;
}

__attribute__((noinline)) int hot(const int *v, int len, int n)
{
	int sum = 0;
	for (int i = 0; i < len; i++) {
		if (v[i] % 7 == 0)
			sum += mix(v[i], n);
		else if (v[i] > 1000)
			sum -= mix(n, v[i]);
		else
			sum ^= v[i];
	}
	return sum;
}

__attribute__((noinline)) void scale(float *to, const float *from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] = from[i] * 1.5f + 2;
}

__attribute__((noinline)) int fold(const char *s)
{
	int h = 0;
	while (*s)
		h = h * 33 + *s++;
	switch (h & 7) {
	case 0:
		return h;
	case 1:
		return h * 3;
	case 2:
		return fold("inner") + h;
	case 3:
		return h / 3;
	case 4:
		return h - 1;
	case 5:
		return h ^ 5;
	}
	return -h;
}

static int fibonacci(int n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static int v[2000];
static float from[512], to[512];
static Circle circles[50];
static Square squares[50];
static Shape *shapes[100];

int main(int argc, char **argv)
{
	unsigned x = 12345;
	for (int &e : v) {
		x = x * 1103515245 + 12345;
		e = x >> 16 & 0x7ff;
	}
	for (int i = 0; i < 50; i++) {
		circles[i].r = squares[i].s = i;
		shapes[2 * i] = &circles[i];
		shapes[2 * i + 1] = &squares[i];
	}
	long total = 0;
	double area = 0;
	int rounds = argc > 1 ? atoi(argv[1]) : 100;
	for (int r = 0; r < rounds; r++) {
		total += hot(v, 2000, r);
		for (Shape *s : shapes)
			area += s->area();
		total += fold(&"hello world"[r % 5]);
		sort(v, v + 500, Less{ r });
		scale(to, from, 512);
		total += fibonacci(12);
	}
	printf("%ld %f %f\n", total, area, to[7]);
}
