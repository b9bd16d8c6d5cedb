package branches

import (
	"math/bits"
	"strings"
	"testing"
	"time"
)

// times returns n times around a second, each a multiple of factor; spread is the largest
// deviation, in 1/1000.
func times(n int, factor float64, spread ...int) []time.Duration {
	var out []time.Duration
	for i := range n {
		t := factor * float64(time.Second)
		if len(spread) > 0 {
			t *= 1 + float64(spread[i%len(spread)])/1000
		}
		out = append(out, time.Duration(t))
	}
	return out
}

func TestCompareTimes(t *testing.T) {
	noise := []int{30, -20, 5, -40, 22, -8, 41, -33, 0, 12}
	other := []int{-31, 8, 27, -12, 3, 39, -25, 18, -2, -40, 7}
	drift := []int{0, 100, 200, 300, 400, 500, 600, 700, 800}
	for name, test := range map[string]struct {
		original, optimized []time.Duration
		want                verdict
		text                string
	}{
		"faster":         {times(9, 1, noise...), times(9, 0.8, other...), faster, "faster: 18.2 % less"},
		"slower":         {times(9, 1, noise...), times(9, 1.2, other...), slower, "SLOWER: 2"},
		"the same":       {times(15, 1), times(15, 1), noDifference, "no difference to the original could be measured: +0.0 %"},
		"noise":          {times(15, 1, noise...), times(15, 0.997, other...), noDifference, "measured: -0.5 %"},
		"noise, slower":  {times(15, 0.997, other...), times(15, 1, noise...), noDifference, "measured: +0.5 %"},
		"drift":          {times(9, 1, drift...), times(9, 0.97, drift...), faster, "faster: 3.0 % less CPU time than the original (95 % interval -3.0 to -3.0 %; 1.36 instead of 1.40 s, 9 runs of each)"},
		"one outlier":    {times(9, 1), append(times(8, 0.9), 5*time.Second), faster, "faster: 10.0 %"},
		"six of six":     {times(6, 1), times(6, 0.99), faster, "faster"},
		"five of six":    {times(6, 1), append(times(5, 0.99), 2*time.Second), noDifference, "no difference"},
		"too few":        {times(5, 1), times(5, 0.5), notCompared, "not compared with the original: 5 runs of each program are too few"},
		"none":           {nil, nil, notCompared, "0 runs"},
		"too short":      {times(9, 0.09), times(9, 0.05), notCompared, "takes only 90 ms of CPU time"},
		"nothing at all": {times(9, 0), times(9, 0), notCompared, "takes only 0 ms"},
		"one is short":   {times(9, 0.2), times(9, 0.05), faster, "faster: 75.0 %"},
		"from nothing":   {append(times(8, 1), 0), times(9, 1), notCompared, "takes only 1000 ms"},
		"half a pair":    {times(7, 1), times(6, 0.9), faster, "6 runs of each"},
	} {
		t.Run(name, func(t *testing.T) {
			c := compare(test.original, test.optimized)
			if c.Verdict != test.want || !strings.Contains(c.text(), test.text) {
				t.Errorf("got %+v, %q; want %s, %q", c, c.text(), test.want, test.text)
			}
			if c.Verdict != notCompared && !(c.Low <= c.Change && c.Change <= c.High) {
				t.Errorf("the change %f is not from %f to %f", c.Change, c.Low, c.High)
			}
		})
	}
}

// TestSignRank compares the ranks with a count of all ways in which n values are below or
// above the median.
func TestSignRank(t *testing.T) {
	for n := range 18 {
		encloses := func(k int) float64 {
			good := 0
			for below := range 1 << n {
				if b := bits.OnesCount(uint(below)); b >= k && n-b >= k {
					good++
				}
			}
			return float64(good) / float64(int(1)<<n)
		}
		k := signRank(n)
		if k > 0 && encloses(k) < 0.95 || 2*(k+1) <= n && encloses(k+1) >= 0.95 {
			t.Errorf("n = %d: got %d, which encloses the median with %f, and one more with %f", n, k, encloses(k), encloses(k+1))
		}
		if (k > 0) != (n >= minRuns) {
			t.Errorf("n = %d: got %d; minRuns is %d", n, k, minRuns)
		}
	}
}
