package describe

import (
	"testing"
	"time"

	"fulgur/internal/profile"
)

func TestTotals(t *testing.T) {
	types := []profile.ValueType{{Type: "samples", Unit: "count"}, onCPU, offCPU, {Type: "block-io", Unit: "bytes"}, {Type: "faults", Unit: "count"}}
	for want, values := range map[string][]int64{
		"14.7 s: 11.3 s on CPU, 3.6 s waiting, 9.4 MiB of disk requests, 151 page faults": {27165, 11_260_000_000, 3_580_000_000, 9_908_224, 151},
		"14.7 s: 1.5 µs on CPU, 1 page fault":                                             {2, 1500, 0, 0, 1},
		"14.7 s: 2.0 ms waiting, 512 bytes of disk requests":                              {2, 0, 2_000_000, 512, 0},
		"14.7 s: nothing": {0, 0, 0, 0, 0},
	} {
		b := profile.NewBuilder(types...)
		b.Add(profile.Sample{Task: b.Task(profile.Task{}), CPU: -1, Values: values})
		if got := Totals(b.Profile(profile.Meta{Duration: 14_700 * time.Millisecond}, profile.Losses{})); got != want {
			t.Errorf("%v: got %q, want %q", values, got, want)
		}
	}
	if !IsMixed(types) || IsMixed(types[:2]) {
		t.Error("only a profile with samples and waits is mixed")
	}
}
