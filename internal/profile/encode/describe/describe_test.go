package describe

import (
	"slices"
	"strings"
	"testing"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
)

func TestStripped(t *testing.T) {
	got := Stripped(profile.StrippedFiles{Omitted: 1, Files: []profile.Stripped{
		{Path: "/srv/\x1b[2Jevil", BuildID: "0123456789abcdef0123456789abcdef01234567", Samples: 1, Remedy: "install \u202eevil"},
		{Path: "/srv/other", Samples: 20},
		{Path: "/srv/nginx", Exports: true, Samples: 2},
	}}, sample)
	want := []Loss{
		{Cause: "stripped", What: `\x1b[2Jevil: stripped (build ID 0123456789ab…)`, Effect: "1 sample", Remedy: `install \u202eevil`},
		{Cause: "stripped", What: "other: stripped", Effect: "20 samples"},
		{Cause: "stripped", What: "nginx: stripped, only exported symbols", Effect: "2 samples"},
		{Cause: "stripped", What: "1 more file without symbols"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		meta profile.Meta
		want string
	}{
		{encodetest.Typical().Meta, "whole system, cpu-clock at 99 Hz, 10s"},
		{profile.Meta{Event: "cpu-clock", Frequency: 9, RequestedFrequency: 19}, "cpu-clock at 9 Hz (lowered from 19 Hz)"},
		{profile.Meta{Scope: "pid 42", Event: "cycles", Period: 1000003}, "pid 42, cycles every 1000003"},
		{profile.Meta{Event: "page-faults", Period: 1}, "page-faults"},
		{profile.Meta{Event: "allocations", Period: 512 << 10}, "allocations, a sample every 512.0 KiB"},
		{profile.Meta{Event: "space", Period: 512 << 10, Every: profile.Interval{Of: profile.ValueType{Type: "space", Unit: "bytes"}, Amount: 512 << 10}}, "heap, a sample every 512.0 KiB"},
		{profile.Meta{Duration: 1234567890 * time.Nanosecond}, "1.23s"},
		{profile.Meta{Duration: 1234567 * time.Nanosecond}, "1ms"},
		{profile.Meta{Scope: "a\nb"}, `a\nb`},
		{profile.Meta{}, ""},
	} {
		if got := Run(c.meta); got != c.want {
			t.Errorf("Run(%+v) = %q, want %q", c.meta, got, c.want)
		}
	}
}

func TestAmount(t *testing.T) {
	for _, c := range []struct {
		n    int64
		of   profile.ValueType
		want string
	}{
		{17, profile.ValueType{Type: "samples", Unit: "count"}, "17 samples"},
		{1, profile.ValueType{Type: "samples", Unit: "count"}, "1 sample"},
		{1500 * 1e6, profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"}, "1.5s off-cpu"},
		{353_719, profile.ValueType{Type: "off-cpu", Unit: "nanoseconds"}, "354µs off-cpu"},
		{4096, profile.ValueType{Type: "bytes", Unit: "bytes"}, "4096 bytes"},
		{4096, profile.ValueType{Type: "read", Unit: "bytes"}, "4096 bytes read"},
		{1, profile.ValueType{Type: "inuse_objects", Unit: "count"}, "1 allocation in use"},
		{3 << 19, profile.ValueType{Type: "alloc_space", Unit: "bytes"}, "1.5 MiB allocated"},
	} {
		if got := Amount(c.n, c.of); got != c.want {
			t.Errorf("%d of %+v: got %q, want %q", c.n, c.of, got, c.want)
		}
	}
}

func TestMachine(t *testing.T) {
	for _, c := range []struct {
		meta profile.Meta
		want string
	}{
		{encodetest.Typical().Meta, "example, Linux 6.12.0 x86_64, 4 CPUs"},
		{profile.Meta{Kernel: "6.1.0", CPUs: 1}, "Linux 6.1.0, 1 CPU"},
		{profile.Meta{}, ""},
	} {
		if got := Machine(c.meta); got != c.want {
			t.Errorf("Machine(%+v) = %q, want %q", c.meta, got, c.want)
		}
	}
}

// TestLossesNamesEveryCause sets each count in turn and expects a description.
func TestLossesNamesEveryCause(t *testing.T) {
	for cause := range profile.Loss(profile.NumLosses) {
		if cause == profile.LossUnresolvedFrames {
			continue // described with LossUnresolved
		}
		var l profile.Losses
		l[cause] = 7
		got := Losses(l, sample)
		if len(got) != 1 || !strings.HasPrefix(got[0].What, "7 ") || got[0].Effect == "" {
			t.Errorf("cause %d: got %+v, want its number and effect", cause, got)
		}
	}
	if got := Brief(profile.Losses{profile.LossRetries: 1, profile.LossOverflows: 2}, sample); len(got) != 0 {
		t.Errorf("late samples: got %q, want nothing", got)
	}
	brief := Brief(profile.Losses{profile.LossTruncatedUser: 1, profile.LossNoTable: 2, profile.LossSamples: 1, profile.LossUnsent: 1, profile.LossMissed: 1, profile.LossRetries: 9}, sample)
	if want := []string{"2 samples lost", "3 user stacks truncated", "1 wait missed"}; !slices.Equal(brief, want) {
		t.Errorf("got %q, want %q", brief, want)
	}
	if got := Losses(profile.Losses{}, sample); len(got) != 0 {
		t.Errorf("no losses: got %+v, want none", got)
	}
	if got := Losses(profile.Losses{profile.LossSamples: 1}, sample)[0].What; got != "1 sample lost" {
		t.Errorf("one sample: got %q, want 1 sample lost", got)
	}
}

// only returns n losses of a cause.
func only(cause profile.Loss, n uint64) (l profile.Losses) {
	l[cause] = n
	return l
}

// The noun for what was measured is in every description, and no placeholder remains.
func TestNouns(t *testing.T) {
	types := func(names ...string) (all []profile.ValueType) {
		for _, name := range names {
			all = append(all, profile.ValueType{Type: name, Unit: "count"})
		}
		return all
	}
	for _, c := range []struct {
		types   []profile.ValueType
		period  uint64
		want    string
		nothing string
	}{
		{types("samples"), 0, "samples", "nothing was sampled"},
		{[]profile.ValueType{{Type: "samples", Unit: "count"}, onCPU, offCPU, {Type: "wall", Unit: "nanoseconds"}}, 0, "samples and waits", "nothing was sampled"},
		{[]profile.ValueType{{Type: "samples", Unit: "count"}, onCPU, offCPU, {Type: "faults", Unit: "count"}}, 0, "events", "nothing was sampled"},
		{[]profile.ValueType{{Type: "samples", Unit: "count"}, offCPU}, 0, "waits", "no waits"},
		{[]profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "block-io", Unit: "bytes"}, {Type: "block-io-time", Unit: "nanoseconds"}}, 0, "requests", "no requests"},
		{[]profile.ValueType{{Type: "samples", Unit: "count"}, onCPU}, 0, "samples", "nothing was sampled"},
		{[]profile.ValueType{onCPU, offCPU}, 0, "events", "nothing was sampled"},
		{types("cycles"), 0, "samples", "nothing was sampled"},
		{nil, 0, "samples", "nothing was sampled"},
		{types("waits"), 0, "waits", "no waits"},
		{types("requests"), 0, "requests", "no requests"},
		{types("hits"), 5, "hits", "no hits"},
		{types("intervals"), 0, "intervals", "no intervals"},
		{types("softirqs"), 0, "softirqs", "no softirqs"},
		{types("alloc_objects"), 0, "allocations", "no allocations"},
		{types("samples", "minor-faults"), 1, "faults", "no faults"},
		{types("samples", "minor-faults"), 100, "samples", "nothing was sampled"},
		{[]profile.ValueType{{Type: "waits", Unit: "nanoseconds"}}, 0, "samples", "nothing was sampled"},
	} {
		noun := NounOf(c.types, c.period)
		if noun.Many() != c.want || noun.Nothing() != c.nothing {
			t.Errorf("%v every %d: got %q and %q, want %q and %q", c.types, c.period, noun.Many(), noun.Nothing(), c.want, c.nothing)
		}
		for cause := range profile.Loss(profile.NumLosses) {
			for _, n := range []uint64{1, 2} {
				for _, l := range Losses(only(cause, n), noun) {
					if strings.Contains(l.What, "{") || !noun.isGeneral() && strings.Contains(l.What, "sample") {
						t.Errorf("%s of %s: got %q", cause, c.want, l.What)
					}
				}
			}
		}
	}
	lost := profile.Losses{profile.LossTraces: 2, profile.LossLimited: 1, profile.LossUnfollowed: 1, profile.LossSkipped: 3}
	for noun, want := range map[Noun][]string{
		sample:            {"3 samples skipped", "1 hit above the limit", "2 samples without stack", "1 wait, request or call not tracked"},
		{"wait", "waits"}: {"3 waits skipped", "1 wait above the limit", "2 waits without stack", "1 wait not tracked"},
	} {
		if got := Brief(lost, noun); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for noun, want := range map[Noun]string{sample: "if many, lower the rate", {"hit", "hits"}: ""} {
		if got := Losses(lost, noun)[0].Remedy; got != want {
			t.Errorf("%s skipped: got remedy %q, want %q", noun.Many(), got, want)
		}
	}
}

// Losses of parts of samples say of how many samples.
func TestLossesIn(t *testing.T) {
	lost := profile.Losses{profile.LossSamples: 1, profile.LossNotReady: 3, profile.LossUnresolved: 1, profile.LossUnresolvedCallers: 101}
	var got []string
	for _, l := range LossesIn(lost, event, 100) {
		got = append(got, l.What)
	}
	want := []string{"1 event lost", "3 user stacks without unwind tables in 100 events", "1 of 100 events in unnamed functions", "101 events with unnamed callers"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if lost := (profile.Losses{profile.LossSkipped: 2}); Brief(lost, event)[0] != "2 samples skipped" {
		t.Errorf("got %q, want 2 samples skipped", Brief(lost, event))
	}
}

// A summary begins with the number of samples by their noun, and the value to show.
func TestHeadline(t *testing.T) {
	faults := []profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "minor-faults", Unit: "count"}, {Type: "faults", Unit: "count"}}
	waits := []profile.ValueType{{Type: "waits", Unit: "count"}, {Type: "off-cpu", Unit: "nanoseconds"}}
	heap := []profile.ValueType{{Type: "alloc_objects", Unit: "count"}, {Type: "alloc_space", Unit: "bytes"}}
	for _, c := range []struct {
		types  []profile.ValueType
		period uint64
		value  int
		want   string
	}{
		{waits, 0, 1, "1 wait, 2µs off-cpu"},
		{waits, 0, 0, "1 wait"},
		{faults, 0, 2, "3 faults"},
		{[]profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "off-cpu", Unit: "nanoseconds"}}, 0, 1, "1 wait, 2µs off-cpu"},
		{[]profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "off-cpu", Unit: "nanoseconds"}, {Type: "faults", Unit: "count"}}, 0, 1, "1 event, 2µs off-cpu"},
		{faults, 100, 2, "1 sample, 3 faults"},
		{heap, 1, 0, "1 allocation"},
		{heap, 1, 1, "1 allocation, 2.0 KiB allocated"},
		{heap, 512 << 10, 1, "estimates from samples: 1 allocation, 2.0 KiB allocated"},
	} {
		p := &profile.Profile{ValueTypes: c.types, Meta: profile.Meta{Period: c.period}, Samples: []profile.Sample{{Values: []int64{1, 2000, 3}[:len(c.types)]}}}
		if got := Headline(p, c.value); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// Sampling gives only estimates of allocations, which are rounded.
func TestHeadlineEstimates(t *testing.T) {
	types := []profile.ValueType{{Type: "alloc_objects", Unit: "count"}}
	for n, want := range map[int64]string{
		0: "0 allocations", 99: "estimates from samples: 99 allocations",
		9818: "estimates from samples: 9800 allocations", 199_900: "estimates from samples: 200000 allocations",
	} {
		p := &profile.Profile{ValueTypes: types, Meta: profile.Meta{Period: 512 << 10}, Samples: []profile.Sample{{Values: []int64{n}}}}
		if got := Headline(p, 0); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
