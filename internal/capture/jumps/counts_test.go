package jumps

import (
	"testing"

	"fulgur/internal/bolt/cfg"
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
