package session

import (
	"testing"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/source/stepping"
)

// A ring that fills is polled more often, at once and within bounds.
func TestAdapt(t *testing.T) {
	r := &boltRun{loop: loop{rest: pollAtMost}}
	for _, test := range []struct {
		fill   float64
		times  int
		atMost bool
	}{{0.01, 3, true}, {0.9, 1, false}, {0.9, 10, false}, {0.2, 5, false}, {0.01, 10, true}} {
		before := r.rest
		for range test.times {
			r.adapt(test.fill)
		}
		switch {
		case test.atMost && r.rest != pollAtMost:
			t.Errorf("fill %.2f: rests for %v, want %v", test.fill, r.rest, pollAtMost)
		case test.fill > 0.5 && (r.rest > before || r.rest <= 0 || r.rest == pollAtMost):
			t.Errorf("fill %.2f: rests for %v, before %v", test.fill, r.rest, before)
		}
	}
}

// How long is measured depends on what is, unless it is asked for.
func TestBoltEnd(t *testing.T) {
	for _, test := range []struct {
		options BoltOptions
		stepped bool
		limit   time.Duration
		enough  bool
	}{
		{BoltOptions{}, false, 10 * time.Second, false},
		{BoltOptions{Duration: time.Minute}, false, time.Minute, false},
		{BoltOptions{Command: []string{"x"}}, false, 0, false},
		{BoltOptions{}, true, 5 * time.Minute, true},
		{BoltOptions{Duration: time.Minute}, true, time.Minute, false},
		{BoltOptions{Command: []string{"x"}}, true, 0, false},
	} {
		r := &boltRun{options: &test.options, binaries: &binaries{only: &bolt.Binary{}}}
		r.end(test.stepped)
		if r.limit != test.limit || (r.enough != nil) != test.enough || r.releaseFirst != test.stepped {
			t.Errorf("%+v: %+v", test, r.loop)
		}
		if r.enough != nil && r.enough() {
			t.Error("nothing is enough")
		}
	}
}

func TestSteppedOptions(t *testing.T) {
	for _, test := range []struct {
		options BoltOptions
		want    stepping.Options
	}{
		{BoltOptions{}, stepping.Options{MaxOverhead: 0.1, BurstMax: 20 * time.Millisecond}},
		{BoltOptions{Command: []string{"x"}}, stepping.Options{MaxOverhead: 0.5, BurstMax: 20 * time.Millisecond}},
		{BoltOptions{Command: []string{"x"}, MaxOverhead: 0.02, BurstMax: time.Millisecond}, stepping.Options{MaxOverhead: 0.02, BurstMax: time.Millisecond}},
	} {
		if got := newStepped(&test.options).options; got != test.want {
			t.Errorf("%+v: %+v", test, got)
		}
	}
}
