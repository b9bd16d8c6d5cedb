package sampling

import (
	"testing"
)

// Of ten periods, seven were sampled, two of these in the idle task. The rest were
// skipped, except for the time that the CPU was idle.
func TestMissing(t *testing.T) {
	const period = 10
	for idle, want := range map[uint64]uint64{0: 3, 20: 3, 30: 2, 40: 0, 100: 0} {
		if got := missing(100, 70+unseen(idle, 20), period); got != want {
			t.Errorf("idle for %d: got %d missing samples, want %d", idle, got, want)
		}
	}
	if got := missing(100, 0, 0); got != 0 {
		t.Errorf("without a period: got %d missing samples, want 0", got)
	}
}
