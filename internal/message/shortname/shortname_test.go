package shortname

import "testing"

func TestOf(t *testing.T) {
	for _, test := range []struct{ name, short, own string }{
		{"main", "main", "main"},
		{"", "", ""},
		{"::", "::", "::"},
		{"[libfoo.so+0x12]", "[libfoo.so+0x12]", "[libfoo.so+0x12]"},
		{"[/home/me/a.tar]", "[/home/me/a.tar]", "[/home/me/a.tar]"},
		{"libc.so.6+0x3f960", "libc.so.6+0x3f960", "libc.so.6+0x3f960"},
		{"memcpy.part.0", "memcpy.part.0", "memcpy.part.0"},
		// C++
		{"http::Server::handle(http::Request const&)", "Server::handle", "handle"},
		{"app::run", "app::run", "run"},
		{"std::vector<int, std::allocator<int>> parse<int>(char const*)", "parse", "parse"},
		{"void std::__1::sort<int*>(int*, int*)", "std::sort", "sort"},
		{"a::(anonymous namespace)::b(int)", "a::b", "b"},
		{"(anonymous namespace)::f", "f", "f"},
		{"__gnu_cxx::__ops::_Iter_comp_iter<main::{lambda(int, int)#1}>::operator()<int*, int*>", "_Iter_comp_iter::operator()", "operator()"},
		{"app::Server::run(int)::{lambda(int)#1}::operator()(int) const", "Server::run::{lambda#1}", "run::{lambda#1}"},
		{"main::{lambda()#2}::operator()", "main::{lambda#2}", "main::{lambda#2}"},
		{"main::$_0::operator()(int) const", "main::$_0", "main::$_0"},
		{"std::ostream& std::operator<< <char>(std::ostream&, char)", "std::operator<<", "operator<<"},
		{"A::operator bool() const", "A::operator bool", "operator bool"},
		{"operator new(unsigned long)", "operator new", "operator new"},
		{"operator()", "operator()", "operator()"},
		{"A<int>::~A()", "A::~A", "~A"},
		{"f<a<b>", "f<a<b>", "f<a<b>"},
		{"f(", "f(", "f("},
		// Rust
		{"<alloc::vec::Vec<T> as core::iter::Iterator>::next", "<Vec as Iterator>::next", "next"},
		{"alloc::vec::Vec<T,A>::push", "Vec::push", "push"},
		{"app::run::<u8>", "app::run", "run"},
		{"app::main::{closure#0}::{closure#1}", "app::main::{closure#0}::{closure#1}", "main::{closure#0}::{closure#1}"},
		{"app::jobs::main::{{closure}}", "jobs::main::{{closure}}", "main::{{closure}}"},
		{"<&T as core::fmt::Debug>::fmt", "<&T as Debug>::fmt", "fmt"},
		// Go
		{"main.main", "main.main", "main.main"},
		{"net/http.(*conn).serve", "http.(*conn).serve", "serve"},
		{"Stdlib.Bytes.(<<)", "Stdlib.Bytes.(<<)", "(<<)"},
		{"Stdlib.(*)", "Stdlib.(*)", "(*)"},
		{"Stdlib.List.fold_left", "Stdlib.List.fold_left", "Stdlib.List.fold_left"},
		{"net/http.HandlerFunc.ServeHTTP", "http.HandlerFunc.ServeHTTP", "HandlerFunc.ServeHTTP"},
		{"example.com/a/b.Map[go.shape.int,example.com/c.T].func1", "b.Map.func1", "Map.func1"},
		{"main.(*tree[...]).insert", "main.(*tree).insert", "insert"},
		// others
		{"JS:*render /srv/app.js:12:3", "JS:*render /srv/app.js:12:3", "JS:*render /srv/app.js:12:3"},
		{"map (node:internal/a:1)", "map (node:internal/a:1)", "map (node:internal/a:1)"},
		{"(anonymous) /srv/app.js:1:1", "(anonymous) /srv/app.js:1:1", "(anonymous) /srv/app.js:1:1"},
		{"outer.<locals>.inner", "outer.<locals>.inner", "outer.<locals>.inner"},
		{"<module>", "<module>", "<module>"},
		{"/usr/bin/odd.name", "/usr/bin/odd.name", "/usr/bin/odd.name"},
		{"int java.lang.String.hashCode()", "java.lang.String.hashCode", "java.lang.String.hashCode"},
	} {
		if short, own := Of(test.name), Own(test.name); short != test.short || own != test.own {
			t.Errorf("%q: got %q and %q, want %q and %q", test.name, short, own, test.short, test.own)
		}
	}
}

func TestFit(t *testing.T) {
	const (
		iterator = "__gnu_cxx::__ops::_Iter_comp_iter<f>::operator()<int>"
		method   = "net/http.(*conn).serve"
	)
	for _, test := range []struct {
		name  string
		width int
		want  string
	}{
		{iterator, 100, iterator},
		{iterator, 30, "_Iter_comp_iter::operator()"},
		{iterator, 26, "…::operator()"},
		{iterator, 12, "…operator()"},
		{iterator, 10, "operator()"},
		{iterator, 6, "opera…"},
		{method, 20, "http.(*conn).serve"},
		{method, 17, "….serve"},
		{method, 3, "se…"},
		{"main", 4, "main"},
		{"main", 3, "ma…"},
		{"main", 0, ""},
		{"日本語の名前", 4, "日本語…"},
	} {
		if got := Fit(test.name, test.width); got != test.want {
			t.Errorf("%q in %d: got %q, want %q", test.name, test.width, got, test.want)
		}
	}
}
