package describe

import (
	"testing"
	"time"

	"fulgur/internal/profile"
)

// The summary has one loss: the gravest one that spoils much, or the one that spoils most.
func TestMainLoss(t *testing.T) {
	meta := profile.Meta{Frequency: 50, CPUs: 2, Duration: 10 * time.Second} // 1000 samples are due
	stripped := profile.StrippedFiles{Files: []profile.Stripped{
		{Path: "/bin/other", Remedy: "install other-dbg"}, {Path: "/lib/libapp.so", Exports: true, Remedy: "install libapp-dbg"},
	}}
	for _, c := range []struct {
		name   string
		losses profile.Losses
		meta   profile.Meta
		want   string
		others int
	}{
		{"none", profile.Losses{}, meta, "", 0},
		{"a few", profile.Losses{profile.LossTruncatedUser: 1, profile.LossUnresolvedCallers: 3}, meta,
			"3 of 200 samples with unnamed callers: their own functions have names", 1},
		{"the gravest", profile.Losses{profile.LossSamples: 20, profile.LossNoTable: 100, profile.LossUnresolved: 150}, meta,
			"20 samples lost: not counted: no room; raise the limit of distinct stacks and the ring size", 2},
		{"stacks before names", profile.Losses{profile.LossSamples: 1, profile.LossNoTable: 10, profile.LossUnresolved: 150}, meta,
			"10 user stacks truncated in 200 samples: code without an unwind table", 2},
		{"symbols", profile.Losses{profile.LossUnresolved: 150}, profile.Meta{Stripped: stripped},
			"150 of 200 samples in unnamed functions: libapp.so: stripped, only exported symbols; install libapp-dbg", 0},
		{"late timers", profile.Losses{profile.LossSkipped: 20, profile.LossUnresolvedCallers: 2}, meta,
			"2 of 200 samples with unnamed callers: their own functions have names", 0},
		{"only late timers", profile.Losses{profile.LossSkipped: 20}, meta, "", 0},
		{"many late timers", profile.Losses{profile.LossSkipped: 30, profile.LossNoTable: 100}, meta,
			"3 % of the samples of all CPUs skipped: by the kernel, of any process: a late timer or another BPF program; if many, lower the rate", 1},
		{"many late timers beside both", profile.Losses{profile.LossSkipped: 30, profile.LossUnresolvedCallers: 8, profile.LossUnresolved: 100}, meta,
			"3 % of the samples of all CPUs skipped: by the kernel, of any process: a late timer or another BPF program; if many, lower the rate", 2},
		{"not measured", profile.Losses{profile.LossUnresolved: 150}, profile.Meta{Unmeasured: []string{"kernel code is missing"}},
			"kernel code is missing", 1},
	} {
		b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
		frame := b.Frame(profile.Frame{Mapping: b.Mapping(profile.Mapping{Path: "/lib/libapp.so"}), Address: 1})
		b.Add(profile.Sample{Stack: b.Push(0, frame), Values: []int64{200}})
		line, others := LackOf(b.Profile(c.meta, c.losses)).Main()
		if line != c.want || others != c.others {
			t.Errorf("%s: got %q and %d others, want %q and %d", c.name, line, others, c.want, c.others)
		}
	}
}

// Without a rate for the whole machine, the share of skipped samples is that of the target.
func TestSkipped(t *testing.T) {
	for _, c := range []struct {
		l    Lack
		want float64
	}{
		{Lack{Samples: 100}, 0},
		{Lack{Losses: profile.Losses{profile.LossSkipped: 100}, Samples: 300}, 0.25},
		{Lack{Losses: profile.Losses{profile.LossSkipped: 100}, Samples: 300, Due: 1000}, 0.1},
		{Lack{Losses: profile.Losses{profile.LossSkipped: 100}, Samples: 300, Due: 10}, 0.25},
	} {
		if got := c.l.Skipped(); got != c.want {
			t.Errorf("%+v: got %v, want %v", c.l, got, c.want)
		}
	}
}
