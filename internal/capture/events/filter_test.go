package events

import (
	"strings"
	"testing"

	"fulgur/internal/bpf"
)

// evaluate runs a filter like bpf/field.h, on numbers and strings by the field's name.
func evaluate(f Filter, numbers map[string]int64, texts map[string]string) (passes bool, steps int) {
	at := 0
	for terms := f.Terms(); at < len(terms); steps++ {
		t, source := terms[at], f.terms[at]
		var holds bool
		n, m := numbers[source.field], int64(t.Number)
		switch bpf.CountFieldCompare(t.Compare) {
		case bpf.CountFieldCompareCOMPARE_EQUAL:
			holds = n == m
		case bpf.CountFieldCompareCOMPARE_NOT_EQUAL:
			holds = n != m
		case bpf.CountFieldCompareCOMPARE_LESS:
			holds = n < m
		case bpf.CountFieldCompareCOMPARE_LESS_EQUAL:
			holds = n <= m
		case bpf.CountFieldCompareCOMPARE_GREATER:
			holds = n > m
		case bpf.CountFieldCompareCOMPARE_GREATER_EQUAL:
			holds = n >= m
		}
		if source.isText {
			holds = (texts[source.field] == source.text) == (source.compare == bpf.CountFieldCompareCOMPARE_EQUAL)
		}
		next := t.No
		if holds {
			next = t.Yes
		}
		if next == pass || next == fail {
			return next == pass, steps + 1
		}
		if int(next) <= at {
			panic("a branch leads back")
		}
		at = int(next)
	}
	return f.Empty(), steps
}

func TestFilter(t *testing.T) {
	texts := map[string]string{"comm": "bash", "field": "x"}
	for s, want := range map[string]func(a, b, c bool) bool{
		`a==1`:                               func(a, b, c bool) bool { return a },
		`!a==1`:                              func(a, b, c bool) bool { return !a },
		`a==1 && b==1`:                       func(a, b, c bool) bool { return a && b },
		`a==1 || b==1 && c==1`:               func(a, b, c bool) bool { return a || b && c },
		`(a==1 || b==1) && c==1`:             func(a, b, c bool) bool { return (a || b) && c },
		`a==1 && b==1 || c==1`:               func(a, b, c bool) bool { return a && b || c },
		`!(a==1 && b==1) && c==1`:            func(a, b, c bool) bool { return !(a && b) && c },
		`!(a==1 || !(b==1 && c!=1)) || c<=0`: func(a, b, c bool) bool { return !(a || !(b && !c)) || !c },
		`a>=1&&comm=="bash"`:                 func(a, b, c bool) bool { return a },
		`field:a>0 && comm != "bash"`:        func(a, b, c bool) bool { return false },
		`a < 1 || a > -1 && b > 0x0`:         func(a, b, c bool) bool { return !a || b },
		``:                                   func(a, b, c bool) bool { return true },
	} {
		f, err := ParseFilter(s)
		if err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		for i := range 8 {
			v := map[string]int64{"a": int64(i & 1), "b": int64(i >> 1 & 1), "c": int64(i >> 2 & 1)}
			got, _ := evaluate(f, v, texts)
			if want := want(v["a"] == 1, v["b"] == 1, v["c"] == 1); got != want {
				t.Errorf("%s with %v: got %t, want %t", s, v, got, want)
			}
		}
	}
	for _, s := range []string{
		"a", "a==", "a=1", "==1", "a==1 b==1", "(a==1", "a==1)", "a==1 &&", "a & 1", "a==x", `a=="x`, `a<"x"`, "1==a", "()", "!", "a==99999999999999999999",
		"a==1" + strings.Repeat("||a==1", 16), strings.Repeat("(", 10000), `a=="` + strings.Repeat("x", 63) + `"`,
	} {
		if f, err := ParseFilter(s); err == nil {
			t.Errorf("%q: got %+v, want an error", s, f)
		}
	}
}

func FuzzParseFilter(f *testing.F) {
	f.Add(`ret > 0 && (comm == "bash" || !(fd != 2))`)
	f.Add(`a==1||b==-1&&c<0x10`)
	f.Fuzz(func(t *testing.T, s string) {
		filter, err := ParseFilter(s)
		if err != nil {
			return
		}
		if _, steps := evaluate(filter, nil, nil); steps > maxTerms {
			t.Errorf("%q: %d steps", s, steps)
		}
	})
}
