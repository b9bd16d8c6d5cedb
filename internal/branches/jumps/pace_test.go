package jumps

import (
	"testing"
	"time"
)

// The pause after long windows is as long as the maximum overhead demands.
func TestPaceOfLongWindows(t *testing.T) {
	for _, test := range []struct {
		window, want time.Duration
		overhead     float64
	}{
		{time.Second, 19 * time.Second, 0.05}, // many processes
		{60 * time.Millisecond, 6 * time.Second, 0.01},
		{100 * time.Millisecond, 100 * time.Millisecond, 0.5},
	} {
		var p pace
		elapsed, disturbed := time.Duration(0), time.Duration(0)
		samples := [2]uint64{}
		for range 200 { // the target stands still while there are probes
			elapsed, disturbed = elapsed+10*test.window, disturbed+test.window
			samples[0] += 5000
			p.update(samples, elapsed, disturbed, 0)
		}
		if got := p.rest(test.overhead); got < test.want*9/10 || got > test.want*11/10 {
			t.Errorf("windows of %v at %g: got a pause of %v, want %v", test.window, test.overhead, got, test.want)
		}
	}
}

// Windows of 100 ms are spaced out by the progress that the target made in them.
func TestPace(t *testing.T) {
	const windows = 10
	for name, test := range map[string]struct {
		calm, disturbed uint64        // samples in 10 s without, and in 1 s with probes
		hits            time.Duration // in 1 s with probes
		rest            time.Duration
		overhead        float64 // -1: unknown
	}{
		"half lost":      {10000, 500, 0, 900 * time.Millisecond, 0.5 / 11},
		"all lost":       {10000, 0, 0, 1900 * time.Millisecond, 1. / 11},
		"nothing lost":   {10000, 1000, 0, 100 * time.Millisecond, 0},
		"more than calm": {10000, 2000, 0, 100 * time.Millisecond, 0},
		// 2 threads are busy, so that 200 ms of hits take 10 % of their time with probes.
		"hits":        {10000, 1000, 200 * time.Millisecond, 300 * time.Millisecond, 0.1 / 11},
		"more hits":   {10000, 600, 2 * time.Second, 1900 * time.Millisecond, 1. / 11},
		"few samples": {100, 1, 0, 1900 * time.Millisecond, -1},
		"no samples":  {0, 0, 0, 1900 * time.Millisecond, -1},
	} {
		t.Run(name, func(t *testing.T) {
			p := pace{frequency: 500}
			for i := range uint64(windows) {
				n := i + 1
				p.update([2]uint64{test.calm * n / windows, test.disturbed * n / windows}, time.Duration(n)*1100*time.Millisecond, time.Duration(n)*100*time.Millisecond, time.Duration(n)*test.hits/windows)
			}
			if got := p.rest(0.05); (got - test.rest).Abs() > time.Millisecond {
				t.Errorf("got rest %v, want %v", got, test.rest)
			}
			overhead, ok := p.overall()
			if ok != (test.overhead >= 0) || ok && (overhead < test.overhead-0.001 || overhead > test.overhead+0.001) {
				t.Errorf("got overhead %g, %t, want %g", overhead, ok, test.overhead)
			}
		})
	}
}

// A window costs nothing before it was open, and pauses have limits.
func TestPaceLimits(t *testing.T) {
	var p pace
	if got := p.rest(0.05); got < shortestRest || got > longestRest {
		t.Errorf("at first: got rest %v", got)
	}
	p.update([2]uint64{1e6, 0}, 20*time.Second, 10*time.Second, 0)
	if got := p.rest(0.01); got != longestRest {
		t.Errorf("after a long window: got rest %v, want %v", got, longestRest)
	}
	if got := p.rest(10); got != shortestRest {
		t.Errorf("with much overhead: got rest %v, want %v", got, shortestRest)
	}
}
