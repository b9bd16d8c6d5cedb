package shortname

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWithoutArguments(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"main", "main"},
		{"std::vector<int, std::allocator<int> >::push_back", "std::vector::push_back"},
		{"std::map<int, std::pair<A<1>, B> >::at<C>", "std::map::at"},
		{"operator<", "operator<"},
		{"operator< <int>", "operator<"},
		{"operator<<", "operator<<"},
		{"operator<< <char>", "operator<<"},
		{"operator<=> <A, B>", "operator<=>"},
		{"std::operator<< <std::char_traits<char> >", "std::operator<<"},
		{"A<int>::operator->", "A::operator->"},
		{"A<int>::operator><B>", "A::operator>"},
		{"A<int>::operator()<B>", "A::operator()"},
		{"my_operator<int>", "my_operator"},
		{"operators<int>::f", "operators::f"},
		{"A<&B::operator<, int>::f", "A::f"},
		{"A<&B::operator>>, int>::f", "A::f"},
		{"A<((1)>(2))>::f", "A::f"},
		{"A<(int)62>::f", "A::f"},
		{"main::{lambda(std::vector<int>)#1}::operator()", "main::{lambda(std::vector)#1}::operator()"},
		{"f(int)::{lambda(auto:1)#1}::operator()<int>", "f(int)::{lambda(auto:1)#1}::operator()"},
		{"decltype ((a)<(b)) f", "decltype ((a)<(b)) f"},
		{"(anonymous namespace)::A<B>::f", "(anonymous namespace)::A::f"},
		{"A<B (*)(C<D>)>::f", "A::f"},
		{"core::ptr::drop_in_place<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place"},
		{"<alloc::vec::Vec<T> as core::iter::Iterator<Item>>::next", "<alloc::vec::Vec as core::iter::Iterator>::next"},
		{"<&T as core::fmt::Debug>::fmt", "<&T as core::fmt::Debug>::fmt"},
		{"app::run::<fn(u8) -> u16>", "app::run"},
		{"core::ops::FnOnce<A>::call<fn() -> B<C>>", "core::ops::FnOnce::call"},
		{"unfinished<int", "unfinished<int"},
		{"odd>", "odd>"},
		{"a<)>", "a<)>"},
		{"<", "<"},
	} {
		if got := withoutArguments(test.name); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add("std::operator<< <std::char_traits<char> >")
	f.Add("<A as B<C>>::operator->")
	f.Fuzz(func(t *testing.T, name string) {
		got := Of(name)
		if utf8.ValidString(name) && !utf8.ValidString(got) {
			t.Errorf("%q: got %q, which is not UTF-8", name, got)
		}
		if !strings.HasSuffix(got, Own(name)) {
			t.Errorf("%q: got %q, which does not end with %q", name, got, Own(name))
		}
		for _, width := range []int{0, 1, 7} {
			if fit := Fit(name, width); utf8.RuneCountInString(fit) > width {
				t.Errorf("%q: got %q for a width of %d", name, fit, width)
			}
		}
	})
}

func TestWithoutInstances(t *testing.T) {
	for name, want := range map[string]string{
		"std.array.Appender!(immutable(char)[]).Appender.put": "std.array.Appender.Appender.put",
		`f!("a)", ')', g!(1)).f!(int)`:                        "f.f",
		"unfinished!(int":                                     "unfinished!(int",
		`unfinished!(")`:                                      `unfinished!(")`,
		"a::operator!(int)":                                   "a::operator!",
	} {
		if got := Of(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
