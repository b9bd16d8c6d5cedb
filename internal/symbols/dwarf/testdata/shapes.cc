// Templates, members, namespaces, lambdas, constructors and exceptions, for
// inlining across all of them.
extern "C" int leaf(int);
extern "C" int in_assembler(int);

namespace geometry {

template <int N> struct Power {
	static inline int of(int x) { return x * Power<N - 1>::of(x) + leaf(N); }
};
template <> struct Power<0> {
	static inline int of(int x) { return x > 3 ? 1 : leaf(x); }
};

struct Shape {
	int edges;
	explicit Shape(int n) : edges(n) { edges += leaf(n); }
	virtual ~Shape();
	virtual int area(int scale) const;
	inline int twice() const { return Power<2>::of(edges) + edges; }
	template <typename F> inline int each(F f) const
	{
		int sum = 0;
		for (int i = 0; i < edges; i++)
			sum += f(i);
		return sum;
	}
};

Shape::~Shape() { leaf(edges); }

int Shape::area(int scale) const
{
	return each([scale](int i) { return Power<3>::of(i) * scale; });
}

namespace {
struct Square final : Shape {
	Square() : Shape(4) {}
	int area(int scale) const override { return twice() * scale; }
};
} // namespace

static inline int measure(const Shape &s)
{
	struct Local {
		static int helper(int x) { return leaf(x) + Power<1>::of(x); }
	};
	return s.area(2) + Local::helper(s.twice());
}

} // namespace geometry

__attribute__((noinline)) static int guarded(int n)
{
	try {
		if (n > 1000)
			throw n;
		return geometry::Power<4>::of(n);
	} catch (int caught) {
		return leaf(caught);
	}
}

__attribute__((noinline)) int unused(int n) { return geometry::Power<2>::of(n); }

int main(int argc, char **)
{
	geometry::Square square;
	geometry::Shape shape(argc);
	return measure(square) + geometry::measure(shape) + guarded(argc) + in_assembler(argc);
}
