package pprof

import (
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
)

func TestMainMapping(t *testing.T) {
	// Process 1 runs mostly in a library, process 2 least of all. The kernel uses more
	// time than either.
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	frame := func(path string, kind profile.Kind) profile.FrameID {
		return b.Frame(profile.Frame{Mapping: b.Mapping(profile.Mapping{Path: path}), Address: 1, Kind: kind})
	}
	libc := frame("/usr/lib/libc.so.6", profile.KindUser)
	plugin := frame("/usr/lib/plugin.so", profile.KindUser)
	one := frame("/usr/bin/one", profile.KindUser)
	two := frame("/usr/bin/two", profile.KindUser)
	kernel := frame("[kernel.kallsyms]", profile.KindKernel)
	add := func(pid int, n int64, frames ...profile.FrameID) {
		var s profile.StackID
		for _, f := range frames {
			s = b.Push(s, f)
		}
		b.Add(profile.Sample{Stack: s, Task: b.Task(profile.Task{PID: pid, TID: pid, Comm: "x"}), CPU: -1, Values: []int64{n}})
	}
	add(2, 3, libc, two)
	add(2, 3, libc, two, kernel)
	add(1, 2, libc, one)
	add(1, 3, libc, one, plugin)
	add(1, 3, libc, plugin, plugin, kernel)
	p := b.Profile(profile.Meta{}, profile.Losses{})
	for system, want := range map[bool]string{false: "/usr/bin/one", true: "[kernel.kallsyms]"} {
		if got := roundTrip(t, p, Options{System: system}).Mapping[0].File; got != want {
			t.Errorf("system %v: got %s first, want %s", system, got, want)
		}
	}

	// No frame of the process is in its program.
	b = profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	add(1, 1, frame("[jit]", profile.KindJIT), frame("/usr/lib/libjvm.so", profile.KindUser))
	p = b.Profile(profile.Meta{}, profile.Losses{})
	if got := roundTrip(t, p, Options{}).Mapping[0].File; got != "/usr/lib/libjvm.so" {
		t.Errorf("got %s first, want the library", got)
	}
	if got := roundTrip(t, encodetest.Empty(), Options{}).Mapping; len(got) > 0 {
		t.Errorf("got mappings %v of an empty profile, want none", got)
	}
}

func TestPeriod(t *testing.T) {
	clock := profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
	faults := profile.ValueType{Type: "page-faults", Unit: "count"}
	for _, test := range []struct {
		weight profile.ValueType
		meta   profile.Meta
		want   int64
	}{
		{clock, profile.Meta{Event: "cpu-clock", Frequency: 100}, 10_000_000},
		{clock, profile.Meta{Event: "cpu-clock", Period: 50_000}, 50_000},
		{faults, profile.Meta{Event: "page-faults", Frequency: 100}, 0},
		{faults, profile.Meta{Event: "page-faults", Period: 7}, 7},
	} {
		b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, test.weight)
		got := roundTrip(t, b.Profile(test.meta, profile.Losses{}), Options{})
		if got.PeriodType.Type != test.weight.Type || got.PeriodType.Unit != test.weight.Unit || got.Period != test.want {
			t.Errorf("%+v: got %d %v, want %d %v", test.meta, got.Period, got.PeriodType, test.want, test.weight)
		}
	}
}

// A profile with a main value makes it the default sample type.
func TestDefaultValue(t *testing.T) {
	types := []profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}, {Type: "faults", Unit: "count"}}
	for value, want := range map[string]string{"": "faults", "cpu": "cpu", "samples": "samples", "other": "faults"} {
		got := roundTrip(t, profile.NewBuilder(types...).Profile(profile.Meta{Value: value}, profile.Losses{}), Options{})
		if got.DefaultSampleType != want || got.PeriodType.Type != want {
			t.Errorf("%q: got default %q and period type %q, want %q", value, got.DefaultSampleType, got.PeriodType.Type, want)
		}
	}
}
