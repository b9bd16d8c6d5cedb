package terminal

import (
	"slices"
	"testing"
	"unicode"
)

func TestParseKeys(t *testing.T) {
	for _, c := range []struct {
		sent string
		want []Key
	}{
		{"q", []Key{'q'}},
		{"jk/ü", []Key{'j', 'k', '/', 'ü'}},
		{"\x1b", []Key{Escape}},
		{"\x1b[A\x1b[B\x1bOA", []Key{Up, Down, Up}},
		{"\x1b[5~\x1b[6~\x1b[H\x1b[4~", []Key{PageUp, PageDown, Home, End}},
		{"\r\n\x7f\b\x15", []Key{Enter, Enter, Backspace, Backspace, Clear}},
		{"\x1b[1;5Cx", []Key{'x'}}, // Ctrl-Right has no meaning here
		{"\x1b[999", nil},
		{"\x1bq", []Key{Escape, 'q'}},
		{"\x01\xff\xfe", nil},
		{"", nil},
	} {
		if got := ParseKeys([]byte(c.sent)); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %v, want %v", c.sent, got, c.want)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	for _, s := range sequences {
		f.Add([]byte(s.text))
	}
	f.Add([]byte("\x1b[1;5C\x1b["))
	f.Fuzz(func(t *testing.T, sent []byte) {
		for _, k := range ParseKeys(sent) {
			if k <= 0 || k > Clear || k <= unicode.MaxRune && !unicode.IsPrint(rune(k)) {
				t.Fatalf("%q: got key %d, want a printable one or a known key", sent, k)
			}
		}
	})
}

func TestFit(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"main", 6, "main  "},
		{"main", 4, "main"},
		{"main", 3, "ma…"},
		{"main", 1, "…"},
		{"main", 0, ""},
		{"日本語", 6, "日本語"},
		{"日本語", 5, "日本…"},
		{"日本語", 4, "日… "},
		{"e\u0301te\u0301", 4, "e\u0301te\u0301 "},
	} {
		got := Fit(c.in, c.width)
		if got != c.want || Width(got) != c.width {
			t.Errorf("Fit(%q, %d): got %q of width %d, want %q", c.in, c.width, got, Width(got), c.want)
		}
	}
}

func TestFitEnd(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"a/b.c:12", 10, "a/b.c:12  "},
		{"a/b.c:12", 8, "a/b.c:12"},
		{"a/b.c:12", 5, "…c:12"},
		{"a/b.c:12", 1, "…"},
		{"a/b.c:12", 0, ""},
		{"日本語", 4, "…語 "},
	} {
		if got := FitEnd(c.in, c.width); got != c.want {
			t.Errorf("FitEnd(%q, %d): got %q, want %q", c.in, c.width, got, c.want)
		}
	}
}
