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

func TestDiff(t *testing.T) {
	base := built(0x1000, 7, map[string]int64{"a": 10, "b": 30})
	changed := built(0x2000, 8, map[string]int64{"b": 15, "c": 5})
	for normalize, want := range map[bool]map[string][]int64{
		false: {"a": {10, 0}, "b": {30, 15}, "c": {0, 5}},
		true:  {"a": {5, 0}, "b": {15, 15}, "c": {0, 5}},
	} {
		d := Diff(base, changed, normalize)
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
	d := Diff(built(0x1000, 7, map[string]int64{"a": 1, "b": 1, "c": 1}), built(0x2000, 8, map[string]int64{"b": 1}), true)
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
	d := Diff(b.Profile(Meta{}, Losses{}), built(0x1000, 7, map[string]int64{"a": 10}), false)
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
			if diff := cmp.Diff(map[string][]int64{"f[...]": {1, 1}, "g": {1, 1}}, changes(Diff(pair[0], pair[1], false))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	}
	others := made(Function{Name: "f[...]", SystemName: "f[string]", File: "f.go"})
	if d := Diff(whole, others, false); len(d.Samples) != 3 {
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
		if d := Diff(p, p, false); d.Total(0) != n || d.Total(1) != n {
			t.Errorf("%d: got %d and %d, want it twice", n, d.Total(0), d.Total(1))
		}
	}
}
