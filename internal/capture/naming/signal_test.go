package naming

import (
	"bytes"
	"slices"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/profile/annotate"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/pprof"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/symbolize"
)

// A signal interrupts a frame at an exact address, which is looked up as it is. Frames of
// callers are looked up at their call addresses.
func TestInterruptedBySignal(t *testing.T) {
	const exact = bpf.FrameExact
	store := stackstest.NewStore(t, stackstest.Layout{File: &process.File{Path: "/usr/bin/app"}}, stackstest.Trace{
		ID: 1, Comm: "app", End: stackstest.Ended,
		User: []uint64{stackstest.FileAt + 0x100, exact | (stackstest.FileAt + 0x200), stackstest.FileAt + 0x300},
	})
	names := Given(store, debugfiletest.NewFinder(t), map[uint64][]symbolize.Frame{
		0x2100: {{Name: "handler", File: "app.c"}}, 0x2200: {{Name: "work", File: "app.c"}}, 0x2300: {{Name: "main", File: "app.c"}},
	})
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	stack := NewStackBuilder(b, store, names).Trace(0)
	b.Add(profile.Sample{Stack: stack, Task: b.Task(profile.Task{PID: 1, Comm: "app"}), CPU: -1, Values: []int64{7, 7e6}})
	p := b.Profile(profile.Meta{}, profile.Losses{})

	want := []uint64{0x2100, 0x2200, 0x22ff}
	check := func(name string, p *profile.Profile) {
		t.Helper()
		counts := annotate.Function(p, func(profile.FrameID) bool { return true }, annotate.Options{})
		var got []uint64
		for place := range counts.Places {
			got = append(got, place.Address)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got instructions at %#x, want %#x", name, got, want)
		}
	}
	check("profile", p)
	for range 2 { // the profile as decoded, and after another round trip
		var out bytes.Buffer
		if err := pprof.Write(&out, p, pprof.Options{}); err != nil {
			t.Fatal(err)
		}
		var err error
		if p, _, err = decode.Read(t.Context(), &out, "pprof"); err != nil {
			t.Fatal(err)
		}
		check("pprof", p)
		if err = firefox.WriteProfile(&out, p, firefox.Options{}); err != nil {
			t.Fatal(err)
		}
		if p, _, err = decode.Read(t.Context(), &out, "Firefox"); err != nil {
			t.Fatal(err)
		}
		check("Firefox", p)
	}
}
