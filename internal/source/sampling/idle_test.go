package sampling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
