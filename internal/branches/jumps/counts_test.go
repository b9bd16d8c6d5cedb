package jumps

import (
	"math"
	"testing"

	"fulgur/internal/branches/cfg"
)

// A program that jumps to ever new addresses does not make the counts grow without limit.
// Outcomes beyond the limit are counted.
func TestMaxTargets(t *testing.T) {
	c := &Counter{program: &cfg.Program{}, counts: Counts{Targets: map[Target]uint64{}}}
	const beyond = 5
	for to := range uint64(maxTargets + beyond) {
		c.led(Target{From: 1, To: to}, 3)
	}
	known := Target{From: 1, To: 0}
	c.led(known, 4)
	if len(c.counts.Targets) != maxTargets || c.counts.Targets[known] != 7 || c.stats.CrowdedTargets != 3*beyond {
		t.Errorf("got %d targets, %d outcomes of the first and %d beyond the limit, want %d, 7 and %d",
			len(c.counts.Targets), c.counts.Targets[known], c.stats.CrowdedTargets, maxTargets, 3*beyond)
	}
}

// The error of a rate grows with the differences between windows: a jump of a phase of the
// program is hit in few of them.
func TestRateErrors(t *testing.T) {
	const phase, never, steady, windows = 0, 1, 2, 40
	c := &Counts{Jumps: make([]Jump, steady+100)} // the steady ones tell the progress
	for w := range windows {
		hits := []windowHits{{jump: never}}
		for i := steady; i < len(c.Jumps); i++ {
			hits = append(hits, windowHits{jump: uint32(i), hits: middling})
		}
		if w%2 == 0 { // 20 windows, of which the phase has 4
			h := windowHits{jump: phase}
			if w%10 == 0 {
				h.hits = 5 * middling
			}
			hits = append(hits, h)
		}
		for _, h := range hits {
			c.Jumps[h.jump].Windows++
			c.Jumps[h.jump].Hits += uint64(h.hits)
		}
		c.windows = append(c.windows, window{open: openTime, hits: hits})
	}
	rates := c.Rates()
	const perSecond = middling / 0.005
	for jump, want := range []Rate{
		steady: {PerSecond: perSecond, Seconds: 0.2, Error: math.Sqrt(fewWindows) / windows},
		phase:  {PerSecond: perSecond, Seconds: 0.1, Error: math.Sqrt(4*4*4+16+fewWindows) / 20},
		never:  {Seconds: 0.2},
	} {
		got := rates[jump]
		for _, v := range [][2]float64{{got.PerSecond, want.PerSecond}, {got.Seconds, want.Seconds}, {got.Error, want.Error}} {
			if math.Abs(v[0]-v[1]) > 0.15*v[1] {
				t.Errorf("jump %d: got %+v, want about %+v", jump, got, want)
			}
		}
	}
}
