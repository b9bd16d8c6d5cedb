package profile

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// built returns a profile of stacks of one function each. Another build has the functions
// at other addresses.
func built(address uint64, pid int, counts map[string]int64) *Profile {
	b := NewBuilder(ValueType{"samples", "count"}, ValueType{"cpu", "nanoseconds"})
	m := b.Mapping(Mapping{Path: "/bin/server", Start: address})
	for _, name := range []string{"a", "b", "c"} {
		if n, ok := counts[name]; ok {
			f := b.Frame(Frame{Function: b.Function(Function{Name: name, StartLine: int(address)}), Mapping: m, Address: address})
			b.Add(Sample{Stack: b.Push(0, f), Task: b.Task(Task{PID: pid, TID: pid, Comm: "server"}), CPU: 1, Values: []int64{n, 10 * n}})
		}
	}
	return b.Profile(Meta{}, Losses{})
}

// changes returns a comparison's values by function.
func changes(p *Profile) map[string][]int64 {
	got := map[string][]int64{}
	for _, s := range p.Samples {
		got[p.FrameName(p.Stacks[s.Stack].Frame)] = s.Values
	}
	return got
}

// diffOf compares two runs, scaled to the same total if asked.
func diffOf(base, changed *Profile, normalize bool) *Profile {
	scale := 1.0
	if normalize {
		scale = float64(changed.Total(0)) / float64(base.Total(0))
	}
	return Diff([]*Profile{base}, []*Profile{changed}, scale)
}

func TestDiff(t *testing.T) {
	base := built(0x1000, 7, map[string]int64{"a": 10, "b": 30})
	changed := built(0x2000, 8, map[string]int64{"b": 15, "c": 5})
	for normalize, want := range map[bool]map[string][]int64{
		false: {"a": {10, 0}, "b": {30, 15}, "c": {0, 5}},
		true:  {"a": {5, 0}, "b": {15, 15}, "c": {0, 5}},
	} {
		d := diffOf(base, changed, normalize)
		if diff := cmp.Diff(want, changes(d)); diff != "" {
			t.Errorf("normalized %v (-want +got):\n%s", normalize, diff)
		}
		if len(d.Tasks) != 1 || d.ValueTypes[0] != (ValueType{"base", "count"}) {
			t.Errorf("got tasks %v, values %v; want one task, base first", d.Tasks, d.ValueTypes)
		}
	}
}

// Scaling loses nothing of a flat profile, whose stacks have a value of 1 each.
func TestDiffFlat(t *testing.T) {
	d := diffOf(built(0x1000, 7, map[string]int64{"a": 1, "b": 1, "c": 1}), built(0x2000, 8, map[string]int64{"b": 1}), true)
	if got := d.Total(0); got != 1 {
		t.Errorf("got a scaled base of %d, want 1", got)
	}
}

// Profiles without mappings are compared by function names.
func TestDiffOfNames(t *testing.T) {
	b := NewBuilder(ValueType{"samples", "count"})
	b.Add(Sample{
		Stack: b.Push(0, b.Frame(Frame{Function: b.Function(Function{Name: "a"})})), Task: b.Task(Task{Comm: "server"}), Values: []int64{4},
	})
	d := diffOf(b.Profile(Meta{}, Losses{}), built(0x1000, 7, map[string]int64{"a": 10}), false)
	if diff := cmp.Diff(map[string][]int64{"a": {4, 10}}, changes(d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Linker names and files count only if both profiles have them, since formats can lack them.
func TestDiffOfFormats(t *testing.T) {
	made := func(functions ...Function) *Profile {
		b := NewBuilder(ValueType{"samples", "count"})
		m := b.Mapping(Mapping{Path: "/bin/server"})
		for i, f := range functions {
			b.Add(Sample{Stack: b.Push(0, b.Frame(Frame{Function: b.Function(f), Mapping: m, Address: uint64(i)})), Task: b.Task(Task{}), Values: []int64{1}})
		}
		return b.Profile(Meta{}, Losses{})
	}
	whole := made(Function{Name: "f[...]", SystemName: "f[int]", File: "f.go"}, Function{Name: "g", SystemName: "g", File: "g.c"})
	named := made(Function{Name: "f[...]", SystemName: "f[...]"}, Function{Name: "g", SystemName: "g"})
	unlinked := made(Function{Name: "f[...]"}, Function{Name: "g"})
	for _, other := range []*Profile{whole, named, unlinked} {
		for _, pair := range [][2]*Profile{{whole, other}, {other, whole}} {
			if diff := cmp.Diff(map[string][]int64{"f[...]": {1, 1}, "g": {1, 1}}, changes(diffOf(pair[0], pair[1], false))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	}
	others := made(Function{Name: "f[...]", SystemName: "f[string]", File: "f.go"})
	if d := diffOf(whole, others, false); len(d.Samples) != 3 {
		t.Errorf("got %d stacks, want 3: functions of different linker names differ", len(d.Samples))
	}
}

func TestOnly(t *testing.T) {
	p := built(1, 1, map[string]int64{"a": 2, "b": 0, "c": 3})
	only := p.Only(1)
	if diff := cmp.Diff(map[string][]int64{"a": {20}, "c": {30}}, changes(only)); diff != "" {
		t.Errorf("second value (-want +got):\n%s", diff)
	}
	if len(only.ValueTypes) != 1 || only.ValueTypes[0].Type != "cpu" || len(p.Samples) != 3 {
		t.Errorf("got values %v of %d samples, want cpu alone, of 3", only.ValueTypes, len(p.Samples))
	}
}

// A comparison is exact for values of any size and sign.
func TestDiffIsExact(t *testing.T) {
	for _, n := range []int64{-1, 1<<60 + 1, -1 << 60, math.MaxInt64} {
		b := NewBuilder(counted[:1]...)
		b.Add(Sample{Task: b.Task(Task{}), Values: []int64{n}})
		p := b.Profile(Meta{}, Losses{})
		if d := diffOf(p, p, false); d.Total(0) != n || d.Total(1) != n {
			t.Errorf("%d: got %d and %d, want it twice", n, d.Total(0), d.Total(1))
		}
	}
}

// Values of several runs stand side by side, and add up in a comparison.
func TestAlign(t *testing.T) {
	one, two := built(0x1000, 7, map[string]int64{"a": 1, "b": 2}), built(0x3000, 9, map[string]int64{"b": 5})
	three := built(0x2000, 8, map[string]int64{"b": 15, "c": 5})
	aligned := Align([]*Profile{one, two}, []*Profile{three.Only(0)})
	want := map[string][]int64{"a": {1, 10, 0, 0, 0}, "b": {2, 20, 5, 50, 15}, "c": {0, 0, 0, 0, 5}}
	if diff := cmp.Diff(want, changes(aligned)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want = map[string][]int64{"a": {1, 0}, "b": {7, 15}, "c": {0, 5}}
	if diff := cmp.Diff(want, changes(Diff([]*Profile{one, two}, []*Profile{three}, 1))); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
}

// coded returns a profile of one sample in a frame.
func coded(m Mapping, fn Function, f Frame) *Profile {
	b := NewBuilder(ValueType{"samples", "count"})
	f.Mapping, f.Function = b.Mapping(m), b.Function(fn)
	b.Add(Sample{Stack: b.Push(0, b.Frame(f)), Task: b.Task(Task{Comm: "server"}), Values: []int64{1}})
	return b.Profile(Meta{}, Losses{})
}

// The code of another build is matched wherever the compiler, the linker and the build have put it.
func TestDiffOfMovedCode(t *testing.T) {
	server := Mapping{Path: "/build/1/server", BuildID: "01"}
	for name, c := range map[string]struct {
		module Mapping
		base   Function
		at     Frame
		want   bool
	}{
		"same":                 {server, Function{Name: "f", SystemName: "f", File: "/build/1/f.c"}, Frame{}, true},
		"another function":     {server, Function{Name: "g", SystemName: "g", File: "/build/1/f.c"}, Frame{}, false},
		"cold part":            {server, Function{Name: "f.cold", SystemName: "f.cold", File: "/build/1/f.c"}, Frame{}, true},
		"another line":         {server, Function{Name: "f", SystemName: "f", File: "/build/1/f.c", StartLine: 7}, Frame{Line: 9}, true},
		"another directory":    {Mapping{Path: "/build/2/server", BuildID: "02"}, Function{Name: "f", SystemName: "f", File: "/build/2/f.c"}, Frame{Address: 8}, true},
		"inlined":              {server, Function{Name: "f", SystemName: "f", File: "/build/1/f.c"}, Frame{Inlined: true}, true},
		"another module":       {Mapping{Path: "/build/1/client"}, Function{Name: "f", SystemName: "f", File: "/build/1/f.c"}, Frame{}, false},
		"in another file":      {server, Function{Name: "f", SystemName: "f", File: "/build/1/g.c"}, Frame{}, false},
		"an overload, mangled": {server, Function{Name: "f", SystemName: "_Z1fi", File: "/build/1/f.c"}, Frame{}, true},
	} {
		d := diffOf(coded(c.module, c.base, c.at), coded(server, Function{Name: "f", SystemName: "f", File: "/build/1/f.c"}, Frame{}), false)
		if got := len(d.Samples) == 1; got != c.want {
			t.Errorf("%s: matched %v, want %v", name, got, c.want)
		}
	}
	for _, c := range []struct {
		base, changed string
		want          bool
	}{
		{"/lib/libssl.so.1.1", "/lib/libssl.so.3", true}, {"/lib/libc-2.31.so", "/lib/libc.so.6", true},
		{"/a/app (deleted)", "/a/app", true}, {"/lib/libssl.so.3", "/lib/libcrypto.so.3", false},
	} {
		f := Function{Name: "f"}
		if d := diffOf(coded(Mapping{Path: c.base}, f, Frame{}), coded(Mapping{Path: c.changed}, f, Frame{}), false); (len(d.Samples) == 1) != c.want {
			t.Errorf("%s and %s: got %d stacks, want the same module: %v", c.base, c.changed, len(d.Samples), c.want)
		}
	}
	// Functions without symbols have the names of addresses, which mean nothing in another build.
	old, same := coded(server, Function{Name: "server+0x10"}, Frame{}), coded(server, Function{Name: "server+0x20"}, Frame{})
	rebuilt := coded(Mapping{Path: "/build/1/server", BuildID: "02"}, Function{Name: "server+0x20"}, Frame{})
	if d := diffOf(old, same, false); len(d.Samples) != 2 {
		t.Errorf("unnamed functions of one build: got %d stacks, want 2", len(d.Samples))
	}
	if diff := cmp.Diff(map[string][]int64{Unnamed[1]: {1, 1}}, changes(diffOf(old, rebuilt, false))); diff != "" {
		t.Errorf("unnamed functions of two builds (-want +got):\n%s", diff)
	}
}
