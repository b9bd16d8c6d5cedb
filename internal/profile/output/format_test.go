package output

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
)

func TestChoose(t *testing.T) {
	for _, test := range []struct {
		output, format string
		want           string // the format's name, or a part of the error
	}{
		{"", "", "text"},
		{"-", "", "text"},
		{"/dev/stdout", "", "text"},
		{"/dev/fd/63", "", "text"},
		{"-", "pprof", "pprof"},
		{"", "folded", "folded"},
		{"/dev/stdout", "svg", "svg"},
		{"/dev/null", "", "text"},
		{"/dev/shm/of-memory.pb.gz", "", "pprof"}, // a regular file
		{"out.txt", "", "text"},
		{"out.folded", "", "folded"},
		{"dir.svg/out.html", "", "html"},
		{"out.htm", "", "html"},
		{"out.svg", "", "svg"},
		{"out.pb.gz", "", "pprof"},
		{"out.pprof", "", "pprof"},
		{"out.prof", "", "pprof"},
		{"out.svg", "folded", "folded"},
		{"out.png", "text", "text"},
		{"out.png", "", `unknown ending of "out.png"`},
		{"out", "", "use one of " + strings.Join(Endings(), ", ")},
		{"out.SVG", "", "unknown ending"},
		{"out.gz", "", "unknown ending"},
		{"out.svg", "png", `unknown format "png"`},
		{"", "SVG", "choose " + plain.Or(Names())},
	} {
		got, err := Choose(test.output, test.format)
		if err == nil && got.Name == test.want {
			continue
		}
		if err == nil || !errors.Is(err, usage.Err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("output %q, format %q: got %q, %v; want %s", test.output, test.format, got.Name, err, test.want)
		}
	}
}

// Each ending selects one format, so no ending may end with another's.
func TestFormatsAreDistinct(t *testing.T) {
	for _, f := range formats {
		for _, ending := range f.Endings {
			got, err := Choose("out"+ending, "")
			if err != nil || got.Name != f.Name {
				t.Errorf("%s: got %q, %v; want %s", ending, got.Name, err, f.Name)
			}
		}
		if !slices.Contains(Names(), f.Name) {
			t.Errorf("got no %s in %s", f.Name, Names())
		}
	}
}

func TestSplitEnding(t *testing.T) {
	for _, c := range []struct{ path, stem, ending string }{
		{"/a.b/name.pb.gz", "/a.b/name", ".pb.gz"},
		{"name.pprof", "name", ".pprof"},
		{"name.speedscope.json", "name", ".speedscope.json"},
		{"name.otlp.json", "name", ".otlp.json"},
		{"name.preagg", "name", ".preagg"}, // of no format
		{"name", "name", ""},
		{"dir/.pb.gz", "dir/.pb", ".gz"},
	} {
		stem, ending := SplitEnding(c.path)
		if stem != c.stem || ending != c.ending {
			t.Errorf("%s: got %q and %q, want %q and %q", c.path, stem, ending, c.stem, c.ending)
		}
	}
}
