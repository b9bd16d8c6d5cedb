package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	seconds := func(s ...float64) (times []time.Duration) {
		for _, s := range s {
			times = append(times, time.Duration(s*float64(time.Second)))
		}
		return times
	}
	r := report{machine: "machine", rounds: 3, variants: []variant{
		{way: way{name: "none"}, times: seconds(1.2, 1.0, 1.1)},
		{way: way{name: "ours"}, note: "much", times: seconds(1.0, 0.99, 1.2)},
	}, slowdown: slowdown{alone: seconds(2, 2.1, 1.9), stepped: seconds(2.2, 2.1, 2.3), reported: []float64{0.09, 0.1, 0.08}}}
	const want = `machine. The sqlite3 shell, n = 3, interleaved; CPU time of a run, median (minimum – maximum).

| profile | CPU s | change | input |
|---|---:|---:|---|
| none | 1.100 (1.000 – 1.200) | +0.0 % |  |
| ours | 1.000 (0.990 – 1.200) | −9.1 % | much |

With stepping at an overhead of 10 %, the same work took a process 2.20 s instead of 2.00 s: +10.0 % (medians of 3); fulgur reported at most 10.0 %.
`
	var got strings.Builder
	if err := r.write(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestSummary(t *testing.T) {
	s, err := readSummary([]byte(`fulgur: it may take a while
{"samples": 2, "records": 64, "stepping": {"max_slowdown": 0.07}, "binaries": [{"taken_by_executable_bytes": 0.25, "unseen_share": 0.125}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	const want = "64 branches, 0.250 for each byte of code, 12.5 % of the execution not seen,"
	if got := s.note(); got != want || s.Stepping.MaxSlowdown != 0.07 {
		t.Errorf("note %q, want %q; %+v", got, want, s)
	}
	for _, text := range []string{"", "no such process", `{"samples"`} {
		if _, err := readSummary([]byte(text)); err == nil {
			t.Errorf("no error for %q", text)
		}
	}
}

// Scripts with the same seed are equal, scripts with different seeds are not.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	script := func(name string, seed uint64) []byte {
		path := filepath.Join(dir, name)
		if err := writeScript(path, seed); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	a, again, b := script("a", 1), script("again", 1), script("b", 2)
	if !bytes.Equal(a, again) || bytes.Equal(a, b) {
		t.Errorf("scripts of %d, %d and %d bytes", len(a), len(again), len(b))
	}
}
