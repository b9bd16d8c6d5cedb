package decode

import (
	"io"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/pprof"
)

// A function without a symbol survives a round trip as one function without a symbol,
// with its addresses and the build ID that can give it a name later.
func TestFunctionWithoutSymbol(t *testing.T) {
	const name, buildID = "git+0x148eb0", "a91136fac508c2f5e175d2f171ba40c017b37072"
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	m := b.Mapping(profile.Mapping{Path: "/usr/bin/git", BuildID: buildID})
	f := b.Function(profile.Function{Name: name, SystemName: name})
	task := b.Task(profile.Task{PID: 1, Comm: "git"})
	for _, at := range []uint64{0x149203, 0x14923c} {
		stack := b.Push(0, b.Frame(profile.Frame{Function: f, Mapping: m, Address: at, Offset: at - 0x148eb0}))
		b.Add(profile.Sample{Stack: stack, Task: task, CPU: -1, Values: []int64{1}})
	}
	p := b.Profile(profile.Meta{}, profile.Losses{})
	for format, write := range map[Format]func(io.Writer) error{
		Pprof:   func(w io.Writer) error { return pprof.Write(w, p, pprof.Options{}) },
		Firefox: func(w io.Writer) error { return firefox.WriteProfile(w, p, firefox.Options{}) },
	} {
		got := decoded(t, encoded(t, write), format)
		addresses := map[uint64]bool{}
		for _, s := range got.Samples {
			id := got.Stacks[s.Stack].Frame
			frame := got.Frames[id]
			addresses[frame.Address] = true
			if got.FrameName(id) != name || frame.Function == 0 || got.Named(id) {
				t.Errorf("%v: got frame %q of function %d, named: %v; want the start address as the name", format, got.FrameName(id), frame.Function, got.Named(id))
			}
			if id := got.Mappings[frame.Mapping].BuildID; id != buildID {
				t.Errorf("%v: got build ID %q, want %q", format, id, buildID)
			}
		}
		if len(addresses) != 2 || !addresses[0x149203] || !addresses[0x14923c] {
			t.Errorf("%v: got addresses %v, want both", format, addresses)
		}
	}
}
