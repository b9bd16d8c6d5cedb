package sampling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestParseIdleTimes(t *testing.T) {
	const stat = "cpu  4517107 933086 1396947 4769023 33008 0 15521 15342 0 0\n" +
		"cpu0 2210561 454865 699512 100 7 0 2132 7383 0 0\n" +
		"cpu12 2306546 478220 697435 3 0 0 13388 7958 0 0\n" +
		"intr 100 1 2 3 4 5 6 7\n" +
		"ctxt 5\n"
	want := map[int]uint64{0: 1_070_000_000, 12: 30_000_000}
	if d := cmp.Diff(want, parseIdleTimes(stat)); d != "" {
		t.Error("(-want +got):\n" + d)
	}
	if len(idleTimes()) == 0 {
		t.Error("this kernel tells of no CPU")
	}
}
