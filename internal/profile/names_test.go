package profile

import (
	"testing"
)

func TestFrameName(t *testing.T) {
	b := newTestBuilder()
	mapping := func(path string) MappingID { return b.Mapping(Mapping{Path: path}) }
	cases := []struct {
		frame Frame
		want  string
	}{
		{Frame{Function: b.Function(Function{Name: "f()", SystemName: "_Z1fv"}), Mapping: mapping("/bin/a"), Address: 1}, "f()"},
		{Frame{Mapping: mapping("/usr/lib/libfoo.so"), Address: 0x1234}, "[libfoo.so+0x1234]"},
		{Frame{Mapping: mapping("[kernel.kallsyms]"), Address: 0xffffffff81000000}, "[kernel.kallsyms+0xffffffff81000000]"},
		{Frame{Mapping: mapping("[anon]"), Address: 0x10}, "[anon+0x10]"},
		{Frame{Address: 0xdead}, "[unknown+0xdead]"},
	}
	var ids []FrameID
	for _, c := range cases {
		ids = append(ids, b.Frame(c.frame))
	}
	p := b.Profile(Meta{}, Losses{})
	for i, c := range cases {
		if got := p.FrameName(ids[i]); got != c.want {
			t.Errorf("FrameName(%+v): got %q, want %q", c.frame, got, c.want)
		}
	}
}

func TestModuleName(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"/usr/lib/x86_64-linux-gnu/libc.so.6", "libc.so.6"},
		{"/tmp/gone (deleted)", "gone (deleted)"},
		{"[kernel.kallsyms]", "kernel.kallsyms"},
		{"[vdso]", "vdso"},
		{"[]", "[]"},
		{"a]", "a]"},
	} {
		b := newTestBuilder()
		id := b.Mapping(Mapping{Path: c.path})
		if got := b.Profile(Meta{}, Losses{}).ModuleName(id); got != c.want {
			t.Errorf("ModuleName(%q): got %q, want %q", c.path, got, c.want)
		}
	}
	if got := newTestBuilder().Profile(Meta{}, Losses{}).ModuleName(0); got != "unknown" {
		t.Errorf("ModuleName without a mapping: got %q, want unknown", got)
	}
}

func TestStrings(t *testing.T) {
	for k, want := range map[Kind]string{
		KindUser: "user", KindKernel: "kernel", KindJIT: "jit", KindMarker: "marker", 99: "unknown",
	} {
		if got := k.String(); got != want {
			t.Errorf("Kind(%d): got %q, want %q", uint8(k), got, want)
		}
	}
}

// A function named after its start address counts as unnamed, in the spelling of each
// format.
func TestNamed(t *testing.T) {
	b := newTestBuilder()
	cases := []struct {
		mapping, function string
		want              bool
	}{
		{"/usr/bin/git", "main", true},
		{"/usr/bin/git", "git+0x148eb0", false},
		{"/usr/bin/git (deleted)", "git+0x148eb0", false},
		{"[vdso]", "vdso+0x10", false},
		{"/usr/bin/git", "git+0x", true},
		{"/usr/bin/git", "git+0x10+0x1", true},
		{"/usr/bin/other", "git+0x148eb0", true},
		{"", "unknown+0x10", true},
		{"/usr/bin/git", "", false},
	}
	var ids []FrameID
	for _, c := range cases {
		f := Frame{Address: 0x149000}
		if c.mapping != "" {
			f.Mapping = b.Mapping(Mapping{Path: c.mapping})
		}
		if c.function != "" {
			f.Function = b.Function(Function{Name: c.function})
		}
		ids = append(ids, b.Frame(f))
	}
	p := b.Profile(Meta{}, Losses{})
	for i, c := range cases {
		if got := p.Named(ids[i]); got != c.want {
			t.Errorf("%q in %q: got Named %v, want %v", c.function, c.mapping, got, c.want)
		}
	}
}

// The number of faults in a recording is not its number of samples.
func TestCountUnnamedOfRecording(t *testing.T) {
	b := NewBuilder(ValueType{Type: "cpu", Unit: "nanoseconds"}, ValueType{Type: "faults", Unit: "count"})
	unnamed := b.Push(0, b.Frame(Frame{Mapping: b.Mapping(Mapping{Path: "/bin/a"}), Address: 1}))
	for i, values := range [][]int64{{5_000_000, 0}, {0, 3}} {
		b.Add(Sample{Stack: unnamed, CPU: i, Values: values})
	}
	p := b.Profile(Meta{}, Losses{LossUnresolved: 8})
	if p.CountUnnamed(false); p.Losses[LossUnresolved] != 8 {
		t.Errorf("got %d samples without names, want the 8 of the recording", p.Losses[LossUnresolved])
	}
}

// Only unnamed leaf functions count as places, not their callers.
func TestCountUnnamed(t *testing.T) {
	b := NewBuilder(ValueType{Type: "samples", Unit: "count"})
	mapping := b.Mapping(Mapping{Path: "/bin/a"})
	at := func(parent StackID, address uint64) StackID {
		return b.Push(parent, b.Frame(Frame{Mapping: mapping, Address: address}))
	}
	callers := at(at(0, 1), 2)
	named := b.Push(callers, b.Frame(Frame{Mapping: mapping, Address: 3, Function: b.Function(Function{Name: "f", SystemName: "f"})}))
	for _, s := range []StackID{at(callers, 4), at(0, 4), named} {
		b.Add(Sample{Stack: s, CPU: -1, Values: []int64{1}})
	}
	p := b.Profile(Meta{}, Losses{})
	p.CountUnnamed(false)
	if l := p.Losses; l[LossUnresolved] != 2 || l[LossUnresolvedFrames] != 1 || l[LossUnresolvedCallers] != 1 {
		t.Errorf("got %d samples at %d places, and %d with unnamed callers; want 2 at 1, and 1",
			l[LossUnresolved], l[LossUnresolvedFrames], l[LossUnresolvedCallers])
	}
}

// The own function of a stack is below its notes, and is not that of the thread that ended the wait. Names that
// were not looked up do not count.
func TestMissingNames(t *testing.T) {
	b := NewBuilder(ValueType{Type: "samples", Unit: "count"})
	file := b.Mapping(Mapping{Path: "/bin/a"})
	note := func(name string) FrameID {
		return b.Frame(Frame{Kind: KindMarker, Function: b.Function(Function{Name: name})})
	}
	unnamed := b.Frame(Frame{Mapping: file, Address: 1})
	named := b.Frame(Frame{Mapping: file, Function: b.Function(Function{Name: "f"})})
	jit := b.Frame(Frame{Kind: KindJIT, Address: 9})
	kernel := b.Frame(Frame{Kind: KindKernel, Address: 5})
	futex, wokenBy := note("[futex]"), note(WokenBy)
	push := func(frames ...FrameID) (s StackID) {
		for _, f := range frames {
			s = b.Push(s, f)
		}
		return s
	}
	for _, c := range []struct {
		stack        StackID
		missing      bool
		loss         Loss
		missingLater bool // with names in files not looked up
	}{
		{push(named), false, 0, false},
		{push(named, unnamed), true, LossUnresolved, false},
		{push(named, unnamed, futex), true, LossUnresolved, false},
		{push(named, unnamed, futex, wokenBy, named, jit), true, LossUnresolved, false},
		{push(named, futex, wokenBy, unnamed), false, 0, false},
		{push(unnamed, named, futex), true, LossUnresolvedCallers, false},
		{push(named, jit), true, LossUnresolvedGenerated, true},
		{push(named, kernel), true, LossUnresolved, true},
		{push(futex), false, 0, false},
		{0, false, 0, false},
	} {
		p := &Profile{Frames: b.p.Frames, Functions: b.p.Functions, Mappings: b.p.Mappings, Stacks: b.p.Stacks}
		got, later := p.MissingNames(false)[c.stack], p.MissingNames(true)[c.stack]
		if got.Missing != c.missing || c.missing && got.Loss != c.loss || later.Missing != c.missingLater {
			t.Errorf("stack %d: got %+v, and %+v without names of files; want %+v", c.stack, got, later, c)
		}
	}
}
