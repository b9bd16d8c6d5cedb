package text

import (
	"strings"
	"testing"

	"fulgur/internal/profile/encode/encodetest"
)

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"main", 4, "main"},
		{"main", 3, "ma…"},
		{"std::map<int, int>::find(int)", 29, "std::map<int, int>::find(int)"},
		{"std::map<int, int>::find(int)", 28, "std::map<…>::find(int)"},
		{"std::map<int, int>::find(int)", 20, "std::map<…>::find(i…"},
		{"日本語の名前", 4, "日本語…"},
		{encodetest.LongName("find", 20), 58, "std::map<…>::find"},
	} {
		if got := cut(c.in, c.width); got != c.want {
			t.Errorf("cut(%.40q, %d) = %q, want %q", c.in, c.width, got, c.want)
		}
	}
}

func TestContract(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"main", "main"},
		{"f<a<b>, c>(d<e>)::g", "f<…>(d<…>)::g"},
		{"a<b> const& f<c>::operator<(d<e>)", "a<…> const& f<…>::operator<(d<…>)"},
		{"operator<< <char>(a<b>&)", "operator<< <char>(a<…>&)"},
		{"a<b>::operator->()", "a<…>::operator->()"},
		{"f<&a::operator-> >(int)", "f<…>(int)"},
		{"a::operator<=>(a)", "a::operator<=>(a)"},
		{"operator<", "operator<"},
		{"operator>>(a<b>)", "operator>>(a<…>)"},
		{"<a::B<c> as d::E>::f", "<a::B<…> as d::E>::f"},
		{"main.(*tree[go.shape.int]).insert", "main.(*tree[go.shape.int]).insert"},
		{"unmatched<a<b>", "unmatched<a<b>"},
		{"<", "<"},
		{"", ""},
	} {
		if got := contract(c.in); got != c.want {
			t.Errorf("contract(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzContract(f *testing.F) {
	f.Add("a<b<c>>::d")
	f.Add("operator<<<char>")
	f.Fuzz(func(t *testing.T, s string) {
		got := contract(s)
		if len(got) > len(s)+strings.Count(s, "<")*len("…") {
			t.Errorf("contract(%q) = %q", s, got)
		}
	})
}
