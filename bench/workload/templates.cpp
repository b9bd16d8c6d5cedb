// A C++ program with much inlining, for comparisons of symbolizers: like in large
// programs, each unit instantiates the same templates of the standard library for
// its own types.
//
// Build units 0 to N-1 with -DUNIT=i -DUNITS=N and link them; unit 0 has main.

#include <algorithm>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#ifndef UNIT
#define UNIT 0
#define UNITS 1
#endif

template <int U> long run(int n);

namespace {

template <int K> struct Value {
	std::string text;
	int numbers[K % 7 + 1];

	bool operator<(const Value &o) const { return text < o.text; }
	bool operator==(const Value &o) const { return text == o.text; }
};

template <int K> struct Hash {
	size_t operator()(const Value<K> &v) const { return std::hash<std::string>()(v.text) + K; }
};

template <int K> struct Shape {
	virtual ~Shape() = default;
	virtual long area() const { return K; }
};

template <int K> struct Square : Shape<K> {
	long side;

	explicit Square(long n) : side(n) {}
	long area() const override { return side * side + Shape<K>::area(); }
};

} // namespace

template <int K> long work(int n)
{
	std::map<Value<K>, std::vector<std::string>> ordered;
	std::unordered_map<Value<K>, std::deque<int>, Hash<K>> hashed;
	std::set<std::pair<Value<K>, int>> pairs;
	std::mt19937 random(n);
	for (int i = 0; i < n; i++) {
		Value<K> v{std::to_string(random()), {}};
		ordered[v].push_back(v.text);
		hashed[v].push_front(i);
		pairs.emplace(v, i);
	}

	std::vector<Value<K>> values;
	for (auto &[value, texts] : ordered)
		values.push_back(value);
	std::sort(values.begin(), values.end(), [](auto &a, auto &b) { return b < a; });
	std::stable_sort(values.begin(), values.end());

	std::variant<int, double, Value<K>, std::vector<int>> either;
	if (n % 3 == 0)
		either = values.front();
	else if (n % 3 == 1)
		either = std::vector<int>(n);
	long result = std::visit([&](auto &x) -> long { return sizeof(x) + n; }, either);

	std::vector<std::unique_ptr<Shape<K>>> shapes;
	for (int i = 0; i < n; i++)
		shapes.push_back(std::make_unique<Square<K>>(i));
	for (const auto &s : shapes)
		result += s->area();

	std::function<long(long)> fibonacci = [&](long i) { return i < 2 ? i : fibonacci(i - 1) + fibonacci(i - 2); };
	result += fibonacci(n % 10);

	std::ostringstream out;
	for (auto &v : values)
		out << v.text << '\n';
	result += out.str().size() + pairs.size();

	try {
		std::regex pattern("([a-z]+)([0-9]" + std::to_string(K) + "*)x?");
		std::smatch found;
		std::string text = "abc" + std::to_string(n);
		if (std::regex_match(text, found, pattern))
			result += found.size();
	} catch (const std::regex_error &e) {
		result += std::string(e.what()).size();
	}
	return std::accumulate(values.begin(), values.end(), result,
		[](long sum, auto &v) { return sum + v.text.size(); });
}

template <> long run<UNIT>(int n)
{
	return work<UNIT>(n) + work<UNIT + UNITS>(n) + work<UNIT + 2 * UNITS>(n) + work<UNIT + 3 * UNITS>(n);
}

#if UNIT == 0
template <int... U> long runAll(int n, std::integer_sequence<int, U...>) { return (run<U>(n) + ...); }

int main(int argc, char **)
{
	std::cout << runAll(argc + 50, std::make_integer_sequence<int, UNITS>()) << '\n';
}
#endif
