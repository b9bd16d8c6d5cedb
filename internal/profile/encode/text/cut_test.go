package text

import (
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
		{"std::map<int, int>::find(int)", 28, "map::find"},
		{"std::map<int, int>::find(int)", 8, "…::find"},
		{"日本語の名前", 4, "日本語…"},
		{encodetest.LongName("find", 20), 58, "map::find"},
	} {
		if got := cut(c.in, c.width); got != c.want {
			t.Errorf("cut(%.40q, %d) = %q, want %q", c.in, c.width, got, c.want)
		}
	}
}
