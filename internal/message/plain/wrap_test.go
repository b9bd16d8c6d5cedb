package plain

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		in      string
		columns int
		want    string
	}{
		{"  a bc def\n", 0, "  a bc def\n"},
		{"  a bc def\n", 10, "  a bc def\n"},
		{"  a bc def\n", 9, "  a bc\n    def\n"},
		{"one two three four", 9, "one two\n    three\n    four"},
		{"a  column   and its effect\nnext\n", 14, "a  column\n    and its\n    effect\nnext\n"},
		{"written: /a/very/long/path and more\n", 12, "written:\n    /a/very/long/path\n    and more\n"},
		{"/a/very/long/path", 5, "/a/very/long/path"},
		{"µµµ µµµ\n", 7, "µµµ µµµ\n"},
		{"\n\n", 1, "\n\n"},
		{"     \n", 2, "     \n"},
	} {
		if got := Wrap(c.in, c.columns); got != c.want {
			t.Errorf("Wrap(%q, %d) = %q, want %q", c.in, c.columns, got, c.want)
		}
	}
}

// Wrapping ends, loses no word, and lines are only too long if they are one word.
func FuzzWrap(f *testing.F) {
	f.Add("  a bc def\n", 9)
	f.Add("   \n a  b", 1)
	f.Fuzz(func(t *testing.T, text string, columns int) {
		got := Wrap(text, columns)
		if a, b := strings.Fields(text), strings.Fields(got); strings.Join(a, " ") != strings.Join(b, " ") {
			t.Fatalf("got words %q, want %q", b, a)
		}
		for line := range strings.Lines(got) {
			line = strings.TrimSuffix(line, "\n")
			if words := strings.Split(strings.Trim(line, " "), " "); columns > 0 && len(words) > 1 && utf8.RuneCountInString(strings.TrimRight(line, " ")) > columns {
				t.Fatalf("%q wrapped at %d: got line %q", text, columns, line)
			}
		}
	})
}
