package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/sides"
)

// sided returns a profile of 2 slow intervals and 8 others, whose stacks have a function and perhaps a note,
// with times in ms on both sides.
func sided(slow, others int64, stacks ...struct {
	function, note string
	slow, others   int64
}) *profile.Profile {
	b := profile.NewBuilder(sides.Intervals, sides.SlowIntervals, sides.Others, sides.Slow)
	app := b.Mapping(profile.Mapping{Path: "/bin/app"})
	for i, s := range stacks {
		at := b.Push(0, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: s.function}), Mapping: app}))
		if s.note != "" {
			at = b.Push(at, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: s.note}), Kind: profile.KindMarker}))
		}
		values := []int64{0, 0, s.others * 1e6, s.slow * 1e6}
		if i == 0 {
			values[0], values[1] = slow+others, slow
		}
		b.Add(profile.Sample{Stack: at, Task: b.Task(profile.Task{PID: 1, Comm: "app"}), CPU: -1, Values: values})
	}
	return b.Profile(profile.Meta{Value: sides.Slow.Type}, profile.Losses{})
}

// The sentence has what slow intervals do longer, by interval, the most first.
func TestSlow(t *testing.T) {
	type row = struct {
		function, note string
		slow, others   int64
	}
	rows := []row{
		{"parse", "", 10, 40},
		{"read", "[disk read]", 66, 8},
		{"read", sides.Runnable, 4, 0},
		{"parse", "[preempted]", 8, 0},
		{"lock", "[futex]", 2, 80},
	}
	for name, test := range map[string]struct {
		p    *profile.Profile
		want string
	}{
		"both sides": {sided(2, 8, rows...), "2 intervals of 10 were slow, and took 45.0 ms on average, 29.0 ms longer than the others: " +
			"32.0 ms waiting ([disk read]) in read, 6.0 ms waiting for a CPU in parse."},
		"all slow": {sided(2, 0, row{"read", "[disk read]", 80, 0}), "2 intervals of 2 were slow, and took 40.0 ms on average: 40.0 ms waiting ([disk read]) in read."},
	} {
		r := New(test.p, 3, 5, false)
		found := ""
		for _, f := range r.Findings {
			if f.Rule == "slow" {
				found = f.Text
			}
		}
		if found != test.want {
			t.Errorf("%s: got %q, want %q", name, found, test.want)
		}
	}
	for _, f := range New(sided(0, 4, row{"parse", "", 0, 4}), 2, 5, false).Findings {
		if f.Rule == "slow" {
			t.Errorf("without slow intervals: got %q", f.Text)
		}
	}
}

// All formats of a report have the slowest intervals.
func TestSlowest(t *testing.T) {
	p := sided(1, 1, struct {
		function, note string
		slow, others   int64
	}{"read", "", 50, 1})
	p.Meta.Slowest = []profile.SlowInterval{{
		Begin: time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local), Length: 50 * time.Millisecond, Running: 10 * time.Millisecond, Runnable: 15 * time.Millisecond,
		Slow: true, PID: 42, TID: 43, Comm: "app", Fields: []profile.Label{{Key: "query", Value: "a|b`c"}},
	}}
	r := New(p, 3, 5, false)
	var text, markdown, encoded bytes.Buffer
	for _, err := range []error{r.WriteText(&text), r.WriteMarkdown(&markdown), r.WriteJSON(&encoded)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ format, got, want string }{
		{"text", text.String(), "  slowest began       length    running   runnable    waiting  thread     query\n  03:04:05.000000  50.000 ms  10.000 ms  15.000 ms  25.000 ms  app-42/43  a|b`c\n"},
		{"markdown", markdown.String(), "|---|---:|---:|---:|---:|---|---|\n| 03:04:05.000000 | 50.000 ms | 10.000 ms | 15.000 ms | 25.000 ms | ` app-42/43 ` | `` a\\|b`c `` |\n"},
	} {
		if !strings.Contains(test.got, test.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", test.format, test.got, test.want)
		}
	}
	var got struct {
		Slowest []map[string]any `json:"slowest"`
	}
	if err := json.Unmarshal(encoded.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Slowest) != 1 || got.Slowest[0]["waiting_seconds"] != 0.025 || got.Slowest[0]["fields"].(map[string]any)["query"] != "a|b`c" {
		t.Errorf("got %v, want one interval that waited for 25 ms", got.Slowest)
	}
}
