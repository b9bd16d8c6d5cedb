package plain

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"unicode/utf8"

	"fulgur/internal/profile/encode/encodetest"
)

func TestError(t *testing.T) {
	err := errors.Join(
		fmt.Errorf("open %s: %w", "/tmp/\x1b]0;title\a\x9b", errors.Join(errors.New("first"), errors.New("second"))),
		errors.New("third"), errors.New("second"))
	want := `open /tmp/\x1b]0;title\a\x9b: first; second; third`
	if got := Error(err); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTerminal(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"main", "main"},
		{"operator\"\" _s(char const*)", "operator\"\" _s(char const*)"},
		{`C:\path`, `C:\path`},
		{"日本語 ünïcode", "日本語 ünïcode"},
		{"replacement \uFFFD itself", "replacement \uFFFD itself"},
		{"", `""`},
		{"a\nb\r\tc", `a\nb\r\tc`},
		{"nul\x00del\x7f", `nul\x00del\x7f`},
		{"\x1b]0;title\x07", `\x1b]0;title\a`},
		{"C1 \u009b31m", `C1 \u009b31m`},
		{"bidi\u202e", `bidi\u202e`},
		{"no shape\u200b\u00ad", `no shape\u200b\u00ad`},
		{"lines\u2028\u2029\u0085", `lines\u2028\u2029\u0085`},
		{"\xff\xfe\xc3", `\xff\xfe\xc3`},
		{"raw C1 \x9b31m", `raw C1 \x9b31m`},
		{"it's 'quoted'\n", `it's 'quoted'\n`},
	} {
		if got := Terminal(c.in); got != c.want {
			t.Errorf("Terminal(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestFoldedFrame(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"main", "main"},
		{"semi;colon", "semi:colon"},
		{"\x1b]0;title\x07", `\x1b]0:title\a`},
		{"", `""`},
	} {
		if got := FoldedFrame(c.in); got != c.want {
			t.Errorf("FoldedFrame(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzTerminal(f *testing.F) {
	for _, name := range encodetest.HostileNames {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Terminal(s)
		if got == "" || !utf8.ValidString(got) {
			t.Fatalf("Terminal(%q) = %q, empty or not UTF-8", s, got)
		}
		for _, r := range got {
			if !strconv.IsPrint(r) {
				t.Fatalf("Terminal(%q) = %q, %q is not printable", s, got, r)
			}
		}
		if again := Terminal(got); again != got {
			t.Fatalf("Terminal(%q) = %q changes to %q the second time", s, got, again)
		}
	})
}

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"1 sample": Count(1, "sample"), "0 samples": Count(0, "sample"), "2 processes": Count(2, "process"), "1 process": Count(1, "process"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
