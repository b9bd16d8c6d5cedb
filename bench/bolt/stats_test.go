package main

import (
	"math"
	"testing"
	"time"
)

// The interval of a mean is about 1.96 standard errors to both sides, and that of equal
// numbers is a point.
func TestBootstrap(t *testing.T) {
	const n = 100
	mean := func(values func(round int) float64) func([]int) float64 {
		return func(rounds []int) float64 {
			sum := 0.0
			for _, r := range rounds {
				sum += values(r)
			}
			return sum / float64(len(rounds))
		}
	}
	alternate := mean(func(round int) float64 { return 10 + float64(round%2*2-1) }) // 9 and 11
	got := bootstrap(n, alternate)
	if math.Abs(got.low-(10-0.196)) > 0.02 || math.Abs(got.high-(10+0.196)) > 0.02 {
		t.Errorf("got %v, want 10 ± 0.196", got)
	}
	if again := bootstrap(n, alternate); again != got {
		t.Errorf("got %v, then %v", got, again)
	}
	if got := bootstrap(n, mean(func(int) float64 { return 3 })); got != (interval{3, 3}) {
		t.Errorf("equal numbers: got %v", got)
	}
}

// Changes are compared by round: a machine that becomes slower from round to round does not
// change them.
func TestChange(t *testing.T) {
	before := []time.Duration{100, 200, 400, 1000}
	after := []time.Duration{90, 180, 360, 950}
	if got := change(after, before, allRounds(4)); math.Abs(got+0.1) > 1e-9 {
		t.Errorf("got %v, want -0.1", got)
	}
	if got := change(after, before, []int{3, 3, 0}); math.Abs(got+0.05) > 1e-9 {
		t.Errorf("of chosen rounds: got %v, want -0.05", got)
	}
}
