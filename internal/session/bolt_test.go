package session

import "testing"

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
