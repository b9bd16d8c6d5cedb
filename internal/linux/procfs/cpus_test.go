package procfs

import (
	"fmt"
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
	if own, err := IdleTimes(); err != nil || len(own) == 0 {
		t.Errorf("this machine: got %v, %v; want times", own, err)
	}
}

// FuzzParseIdleTimes finds the line of a CPU after arbitrary lines.
func FuzzParseIdleTimes(f *testing.F) {
	f.Add("cpu  4517107 933086 1396947 4769023 33008 0 15521 15342 0 0", uint16(3), uint32(100), uint32(7))
	f.Fuzz(func(t *testing.T, others string, cpu uint16, idle, wait uint32) {
		before := parseIdleTimes(others)[int(cpu)]
		got := parseIdleTimes(fmt.Sprintf("%s\ncpu%d 1 2 3 %d %d 0 0 0 0 0\n", others, cpu, idle, wait))[int(cpu)]
		if want := before + (uint64(idle)+uint64(wait))*uint64(Tick); got != want {
			t.Errorf("got %d ns idle, want %d", got, want)
		}
	})
}

func TestParseContextSwitches(t *testing.T) {
	if n, err := parseContextSwitches("cpu  1 2\nctxt 1234567890123\nbtime 5\n"); err != nil || n != 1234567890123 {
		t.Errorf("got %d, %v", n, err)
	}
	for _, bad := range []string{"", "ctxt\n", "ctxt x\n"} {
		if n, err := parseContextSwitches(bad); err == nil {
			t.Errorf("%q: got %d", bad, n)
		}
	}
}

func TestParseBusyTime(t *testing.T) {
	stat := "cpu  1 20 300 4000 50000 600000 7000000 8 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
	if got, want := parseBusyTime(stat), (1+20+300+600000+7000000)*Tick; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := parseBusyTime("cpu 5"); got != 5*Tick {
		t.Errorf("got %v, want %v", got, 5*Tick)
	}
}
