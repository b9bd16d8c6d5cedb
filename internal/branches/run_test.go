package branches

import (
	"testing"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/stepping"
	"fulgur/internal/capture/loop"
)

// A ring that fills up is polled more often at once, within limits.
func TestAdapt(t *testing.T) {
	r := &branchRun{loop: loop.Loop{Rest: loop.PollAtMost}}
	for _, test := range []struct {
		fill   float64
		times  int
		atMost bool
	}{{0.01, 3, true}, {0.9, 1, false}, {0.9, 10, false}, {0.2, 5, false}, {0.01, 10, true}} {
		before := r.loop.Rest
		for range test.times {
			r.adapt(test.fill)
		}
		switch {
		case test.atMost && r.loop.Rest != loop.PollAtMost:
			t.Errorf("fill %.2f: got rest %v, want %v", test.fill, r.loop.Rest, loop.PollAtMost)
		case test.fill > 0.5 && (r.loop.Rest > before || r.loop.Rest <= 0 || r.loop.Rest == loop.PollAtMost):
			t.Errorf("fill %.2f: got rest %v after %v, want a shorter one", test.fill, r.loop.Rest, before)
		}
	}
}

// The length of a measurement depends on its mode, unless it is given.
func TestBoltEnd(t *testing.T) {
	for _, test := range []struct {
		options  Options
		recorder recorder
		limit    time.Duration
		stepped  bool
		enough   bool
	}{
		{Options{}, &recorded{}, 10 * time.Second, false, false},
		{Options{Duration: 2 * time.Minute}, &recorded{}, 2 * time.Minute, false, false},
		{Options{Command: []string{"x"}}, &recorded{}, 0, false, false},
		{Options{}, &counted{}, time.Minute, false, false},
		{Options{Duration: 2 * time.Minute}, &counted{}, 2 * time.Minute, false, false},
		{Options{Command: []string{"x"}}, &counted{}, 0, false, false},
		{Options{}, &stepped{}, 5 * time.Minute, true, true},
		{Options{Duration: 2 * time.Minute}, &stepped{}, 2 * time.Minute, true, false},
		{Options{Command: []string{"x"}}, &stepped{}, 0, true, false},
	} {
		r := &branchRun{options: &test.options, recorder: test.recorder, binaries: &binaries{only: &bolt.Binary{}}}
		r.end()
		if r.loop.Limit != test.limit || (r.loop.Enough != nil) != test.enough || r.loop.ReleaseFirst != test.stepped {
			t.Errorf("%+v: got %+v", test, r.loop)
		}
		if r.loop.Enough != nil && r.loop.Enough() {
			t.Error("got enough without samples")
		}
	}
}

func TestOverheadText(t *testing.T) {
	for overhead, want := range map[float64]string{0.07: "7 %", 0.125: "12.5 %", 10: "1000 %"} {
		s := newStepped(&Options{MaxOverhead: overhead})
		if got := s.overhead(); got != want {
			t.Errorf("%g: got %s, want %s", overhead, got, want)
		}
	}
}

func TestSteppedOptions(t *testing.T) {
	for _, test := range []struct {
		options Options
		want    stepping.Options
	}{
		{Options{}, stepping.Options{MaxOverhead: 0.1, BurstMax: 20 * time.Millisecond}},
		{Options{Command: []string{"x"}}, stepping.Options{MaxOverhead: 0.5, BurstMax: 20 * time.Millisecond}},
		{Options{Command: []string{"x"}, MaxOverhead: 0.02, BurstMax: time.Millisecond}, stepping.Options{MaxOverhead: 0.02, BurstMax: time.Millisecond}},
	} {
		if got := newStepped(&test.options).options; got != test.want {
			t.Errorf("%+v: got %+v, want %+v", test, got, test.want)
		}
	}
}
