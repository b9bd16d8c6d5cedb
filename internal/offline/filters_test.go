package offline

import (
	"bytes"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/filter"
	"fulgur/internal/profile/timeline/timelinetest"
)

// recordings returns the paths of a recording of three seconds in each format with times, and of a file of perf.
func recordings(t *testing.T) map[string]string {
	t.Helper()
	line := timelinetest.Busy(t, rand.New(rand.NewPCG(5, 6))) //nolint:gosec // reproducible
	paths := map[string]string{".data": perfDataPath(t)}
	for ending, encode := range map[string]func(io.Writer) error{
		".json.gz": func(w io.Writer) error { return firefox.Write(w, line, firefox.Options{}) },
		".html":    func(w io.Writer) error { return flame.WriteHTML(w, line.Profile, flame.Options{Times: line}) },
	} {
		var b bytes.Buffer
		if err := encode(&b); err != nil {
			t.Fatal(err)
		}
		paths[ending] = write(t, "recording"+ending, b.String())
	}
	return paths
}

// filters parses filters.
func filters(t *testing.T, texts ...string) (list filter.List) {
	t.Helper()
	for _, text := range texts {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	return list
}

// foldedOf returns the amounts of a value by folded stack.
func foldedOf(t *testing.T, path, value string, texts ...string) map[string]int64 {
	t.Helper()
	var out strings.Builder
	code, err := Convert(t.Context(), ConvertOptions{Input: path, Format: "folded", Value: value, Filters: filters(t, texts...), Stdout: &out, Stderr: io.Discard})
	if err != nil || code != 0 {
		t.Fatalf("%s: exit code %d, %v", path, code, err)
	}
	sums := map[string]int64{}
	for line := range strings.Lines(out.String()) {
		if i := strings.LastIndexByte(line, ' '); !strings.HasPrefix(line, "#") {
			n, err := strconv.ParseInt(strings.TrimSpace(line[i:]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sums[line[:i]] += n
		}
	}
	return sums
}

// A filtered recording keeps its times, and its parts add up to the whole, as a search in the text of folded stacks says.
func TestFilteredTimes(t *testing.T) {
	for ending, path := range recordings(t) {
		value := map[string]string{".data": "", ".html": "samples", ".json.gz": "alloc"}[ending]
		whole := foldedOf(t, path, value)
		searched := map[string]int64{}
		for stack, n := range whole {
			if strings.Contains(stack, "walk") {
				searched[stack] = n
			}
		}
		if got := foldedOf(t, path, value, "time:,"); !cmp.Equal(got, whole) {
			t.Errorf("%s: the whole time (-want +got):\n%s", ending, cmp.Diff(whole, got))
		}
		if ending == ".data" {
			continue
		}
		made := func(texts ...string) string {
			t.Helper()
			out := filepath.Join(t.TempDir(), "x"+ending)
			if code, err := Convert(t.Context(), ConvertOptions{Input: path, Output: out, Filters: filters(t, texts...), Stdout: io.Discard, Stderr: io.Discard}); err != nil || code != 0 {
				t.Fatalf("%s, %q: exit code %d, %v", ending, texts, code, err)
			}
			in, err := readInput(t.Context(), out, "", "", allTimes, func(err error) { t.Error(err) })
			if err != nil {
				t.Fatal(err)
			}
			if in.line == nil {
				t.Errorf("%s, %q: the filtered recording has no times", ending, texts)
			}
			return out
		}
		if got := foldedOf(t, made("focus:walk"), value); !cmp.Equal(got, searched) || len(got) == 0 {
			t.Errorf("%s: got stacks with walk (-want +got):\n%s", ending, cmp.Diff(searched, got))
		}
		var whichever map[string]int64
		for _, parts := range [][2]string{{"time:,1.5", "time:1.5s,"}, {"time:1s,2s", "ignore-time:1s,2s"}} {
			sums := foldedOf(t, made(parts[0]), value)
			if len(sums) == 0 || cmp.Equal(sums, whole) {
				t.Errorf("%s: %s left %d stacks of %d", ending, parts[0], len(sums), len(whole))
			}
			whichever = maps.Clone(sums)
			for stack, n := range foldedOf(t, made(parts[1]), value) {
				sums[stack] += n
			}
			for stack, n := range sums { // a wait that is cut is two
				if extra := n - whole[stack]; extra != 0 && (value != "samples" || !strings.HasSuffix(stack, "]") || extra > 3) {
					t.Errorf("%s: %v have %d of %s, the whole has %d", ending, parts, n, stack, whole[stack])
				}
			}
		}
		// A part of a part counts from its beginning.
		if got := foldedOf(t, made("time:1,"), value, "time:0,1"); value == "alloc" && !cmp.Equal(got, whichever) {
			t.Errorf("%s: the first second of the rest (-want +got):\n%s", ending, cmp.Diff(whichever, got))
		}
	}
}

// The threads of a recording can be chosen, though its sum has none.
func TestFilteredThreads(t *testing.T) {
	path := recordings(t)[".json.gz"]
	whole, sums := foldedOf(t, path, "cpu"), map[string]int64{}
	for _, tid := range []string{"42", "43", "44"} {
		part := foldedOf(t, path, "cpu", "thread:"+tid)
		if len(part) == 0 {
			t.Errorf("thread %s has no stacks", tid)
		}
		for stack, n := range part {
			sums[stack] += n
		}
	}
	if !cmp.Equal(sums, whole) {
		t.Errorf("all threads (-whole +got):\n%s", cmp.Diff(whole, sums))
	}
}

// Commands say which files have no times.
func TestNoTimes(t *testing.T) {
	path := write(t, "a.folded", "main;work 3\n")
	list := filters(t, "time:1,2")
	for command, run := range map[string]func() (int, error){
		"convert": func() (int, error) {
			return Convert(t.Context(), ConvertOptions{Input: path, Format: "folded", Filters: list, Stdout: io.Discard, Stderr: io.Discard})
		},
		"report": func() (int, error) {
			return Report(t.Context(), ReportOptions{Input: path, Filters: list, Stdout: io.Discard, Stderr: io.Discard})
		},
		"timeline": func() (int, error) {
			return Report(t.Context(), ReportOptions{Input: path, Question: "timeline", Stdout: io.Discard, Stderr: io.Discard})
		},
		"diff": func() (int, error) {
			return Diff(t.Context(), DiffOptions{Base: []string{path}, New: []string{path}, Filters: list, Stdout: io.Discard, Stderr: io.Discard})
		},
		"view": func() (int, error) {
			return View(t.Context(), ViewOptions{Input: path, Filters: list, Stderr: io.Discard})
		},
	} {
		code, err := run()
		if code != 2 || err == nil || !strings.Contains(err.Error(), "a.folded has no times") || !strings.Contains(err.Error(), "fulgur record -o") {
			t.Errorf("%s: got exit code %d, %v", command, code, err)
		}
	}
}

// A range of time is in the address of a page that shows times. Other filters of time are applied before.
func TestDividedFilters(t *testing.T) {
	for _, c := range []struct {
		o         ViewOptions
		own, page string
	}{
		{ViewOptions{Filters: filters(t, "time:1,2", "focus:a")}, "", "filter=focus%3Aa&time=1000-2000"},
		{ViewOptions{Filters: filters(t, "time:1,", "focus:a")}, "time:1,", "filter=focus%3Aa"},
		{ViewOptions{Filters: filters(t, "ignore-time:1,2")}, "ignore-time:1,2", ""},
		{ViewOptions{Filters: filters(t, "time:1,2"), Base: "x"}, "time:1,2", ""},
		{ViewOptions{Filters: filters(t, "time:1,2", "time:1,3")}, "time:1,2 time:1,3", ""},
	} {
		own, page := c.o.dividedFilters()
		var texts []string
		for _, f := range own {
			texts = append(texts, f.String())
		}
		if got := strings.Join(texts, " "); got != c.own || page.Address() != c.page {
			t.Errorf("%v: got %q and the address %q, want %q and %q", c.o.Filters, got, page.Address(), c.own, c.page)
		}
	}
}
