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
	r := report{machine: "machine", rounds: 3, loads: []float64{3, 1, 2.2}, results: []result{
		{subject: "shell", variants: []variant{
			{way: way{name: "none"}, times: seconds(1.2, 1.0, 1.1)},
			{way: way{name: "all", file: instrumentedFile}, times: seconds(0.96, 0.8, 0.88)},
			{way: way{name: "ours"}, note: "much", accuracy: &accuracy{0.012, 0.005}, times: seconds(1.08, 0.84, 0.99)},
		}, slowdown: slowdown{alone: seconds(2, 2.1, 1.9), stepped: seconds(2.2, 2.1, 2.3), reported: []float64{0.09, 0.1, 0.08}}},
		{subject: "server", variants: []variant{
			{way: way{name: "none"}, times: seconds(1, 1, 1)},
			{way: way{name: "all", file: instrumentedFile}, times: seconds(0.9, 1, 1.1)},
			{way: way{name: "ours"}, times: seconds(0.9, 0.9, 0.9)},
		}},
	}}
	const want = `machine; load 1 to 3. n = 3, interleaved. CPU time of a run: median (minimum – maximum). Changes
against no profile: median of the changes by round (95 % interval, bootstrap). Share of the
change with llvm-bolt's instrumentation, with its interval. Compared with the instrumentation:
branches at places that the profile does not have, and wrong outcomes of the others.

| program | profile | CPU s | change | share | not seen | wrong | input |
|---|---|---:|---:|---:|---:|---:|---|
| shell | none | 1.100 (1.000 – 1.200) |  |  |  |  |  |
| shell | all | 0.880 (0.800 – 0.960) | −20.0 % (−20.0 to −20.0) |  |  |  |  |
| shell | ours | 0.990 (0.840 – 1.080) | −10.0 % (−16.0 to −10.0) | 0.50 (0.50 to 0.80) | 1.20 % | 0.50 % | much |
| server | none | 1.000 (1.000 – 1.000) |  |  |  |  |  |
| server | all | 1.000 (0.900 – 1.100) | +0.0 % (−10.0 to +10.0) |  |  |  |  |
| server | ours | 0.900 (0.900 – 0.900) | −10.0 % (−10.0 to −10.0) | – |  |  |  |

With stepping at an overhead of 10 %, the same work took shell 2.20 s instead of 2.00 s: +10.0 % (medians of 3); fulgur reported at most 10.0 %.
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

// Loads with the same seed are equal, loads with different seeds are not.
func TestLoads(t *testing.T) {
	dir := t.TempDir()
	for _, s := range subjects() {
		s.size = 1000
		load := func(name string, seed uint64) []byte {
			path := filepath.Join(dir, name)
			if err := s.write(path, seed); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		a, again, b := load("a", 1), load("again", 1), load("b", 2)
		if !bytes.Equal(a, again) || bytes.Equal(a, b) {
			t.Errorf("%s: loads of %d, %d and %d bytes", s.name, len(a), len(again), len(b))
		}
	}
}
