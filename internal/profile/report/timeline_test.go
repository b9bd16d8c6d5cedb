package report

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"fulgur/internal/profile/timeline/timelinetest"
)

// A timeline has the threads of a recording, busiest first, with their states in each slice.
func TestTimeline(t *testing.T) {
	q, ok := FindQuestion("timeline")
	if !ok || !q.OfTimes {
		t.Fatal("no question timeline")
	}
	line := timelinetest.Recording(t)
	p := line.Profile
	a, err := Ask(p, q, Choice{Rows: 1, Times: line, Slices: 4, Offset: int64(2 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := a.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	// The main thread ran for 6 ms and waited for 20 of the first 25 ms; 0.3 ms of the next slice it was preempted.
	const want = `Threads, busiest first, in percent of each of 4 slices of 25.0 ms, by its start in seconds:

  pid  tid  name  state     all  2.000  2.025  2.050  2.075
   42   42  tar   running     6     20      4      0      0
                  runnable    0      0      1      0      0
                  waiting    20     78      2      0      0

and 1 more
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Rows []struct {
			Thread int                  `json:"tid"`
			States map[string]float64   `json:"states"`
			Over   map[string][]float64 `json:"over"`
		} `json:"rows"`
		More   int
		Slices struct {
			Start   float64 `json:"start_seconds"`
			Seconds float64 `json:"seconds"`
			Count   int     `json:"count"`
			Waits   bool    `json:"waits"`
		} `json:"slices"`
	}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	s := read.Slices
	if s.Start != 2 || s.Seconds != 0.025 || s.Count != 4 || !s.Waits || read.More != 1 || len(read.Rows) != 1 {
		t.Fatalf("got %s", text)
	}
	for state, share := range read.Rows[0].States {
		var sum float64
		for _, of := range read.Rows[0].Over[state] {
			sum += of / 4
		}
		if math.Abs(sum-share) > 1e-9 {
			t.Errorf("%s: the slices add up to %v, the whole is %v", state, sum, share)
		}
	}
}
