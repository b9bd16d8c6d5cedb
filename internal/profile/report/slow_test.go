package report

import (
	"testing"

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
