package sampling

import (
	"testing"
)

// Of ten periods seven were handed over, two of them of the idle task: the rest is
// skipped as far as the CPU was not idle.
func TestMissing(t *testing.T) {
	const period = 10
	for idle, want := range map[uint64]uint64{0: 3, 20: 3, 30: 2, 40: 0, 100: 0} {
		if got := missing(100, 70+unseen(idle, 20), period); got != want {
			t.Errorf("idle for %d: %d samples lack, want %d", idle, got, want)
		}
	}
	if got := missing(100, 0, 0); got != 0 {
		t.Errorf("without a period %d samples lack", got)
	}
}
