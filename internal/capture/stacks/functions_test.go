package stacks

import (
	"slices"
	"testing"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/process"
	"fulgur/internal/runtimes"
)

// only returns [Store.Readers] of processes that have only V8, whose functions r reads.
func only(r runtimes.Reader) func(int, runtimes.Kind, uint64) runtimes.Reader {
	return func(_ int, kind runtimes.Kind, _ uint64) runtimes.Reader {
		if kind != bpf.RuntimeV8 {
			return nil
		}
		return r
	}
}

// code returns the record of a Python 3.9 function of process 7. Each line spans two
// positions, and the first line is first.
func code(address uint64, check uint32, name string, first uint32) []byte {
	r := new(bpf.CodeHead)
	r.Type, r.Address, r.Check = uint32(bpf.RecordCode), address, check
	r.Kind, r.Version, r.FirstLine = uint32(bpf.RuntimePython), 9, first
	r.Name.Length, r.Name.Width = uint32(copy(r.NameText[:], name)), 1
	r.File.Length, r.File.Width = uint32(copy(r.FileText[:], "a.py")), 1
	lines := "\x02\x01\x02\x01"
	r.Lines = uint32(len(lines))
	return append(unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r)), lines...)
}

// python returns the words of a Python frame in a stack record.
func python(address uint64, check uint32, position int) []uint64 {
	return []uint64{
		1<<bpf.FrameRuntimeShift | uint64(bpf.RuntimePython)<<bpf.FrameKindShift | address,
		uint64(check)<<32 | bpf.FrameEntered | uint64(position+1),
	}
}

// shown is a frame of a stack: the name of a runtime's function, or "" for native code,
// and its line or address.
type shown struct {
	name    string
	address uint64
}

func (s *Store) shown(t *testing.T, id uint64) (frames []shown) {
	t.Helper()
	trace, ok := s.Trace(id)
	if !ok || trace.Cut {
		t.Fatalf("got trace %+v, %v; want one that is not cut", trace, ok)
	}
	for at := trace.Leaf; at != 0; at = s.Nodes[at].Parent {
		f := s.Frames[s.Nodes[at].Frame]
		name := ""
		if c := s.Codes[f.Code]; c.Kind == CodeRuntime {
			name = c.Function.Name
		}
		frames = append(frames, shown{name, f.Address})
	}
	return frames
}

func give(t *testing.T, s *Store, records ...[]byte) {
	t.Helper()
	for _, r := range records {
		kind, err := RecordType(r)
		if err == nil && kind == bpf.RecordCode {
			err = s.AddCode(r)
		} else if err == nil {
			err = s.Add(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A frame of a runtime gets the function that was at its address when the stack was
// sampled, and the line of its position. It gets no name from other code at the address,
// or if the function has not arrived.
func TestStoreFunctions(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	user := slices.Concat([]uint64{0x100}, python(0x5000, 1, 2), python(0x5000, 2, -1), []uint64{0x200}, python(0x6000, 1, 0))
	give(t, s, code(0x5000, 1, "old", 10), code(0x5000, 2, "new", 20), record(1, nil, user))
	if want := []shown{{"", 0x100}, {"old", 11}, {"new", 20}, {"", 0x200}, {"", 0}}; !slices.Equal(s.shown(t, 1), want) {
		t.Errorf("got %+v, want %+v", s.shown(t, 1), want)
	}
	// A function that arrives late names later stacks, including those of the next store.
	next := s.Next()
	give(t, next, record(3, nil, user))
	give(t, s, code(0x6000, 1, "late", 30), record(2, nil, user))
	for _, got := range [][]shown{s.shown(t, 2)[3:], next.shown(t, 3)[:2]} {
		if !slices.Equal(got, []shown{{"", 0x200}, {"late", 30}}) && !slices.Equal(got, []shown{{"", 0x100}, {"old", 11}}) {
			t.Errorf("got %+v, want the frames of stack 1 or 2", got)
		}
	}
}

// If native frames of the runtime are hidden, they are left out of stacks with frames of
// the runtime.
func TestStoreHides(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	s.Hides = func(*process.File) bool { return true }
	user := slices.Concat([]uint64{0x100}, python(0x5000, 1, 2), []uint64{0x200})
	give(t, s, code(0x5000, 1, "f", 10), record(1, nil, user), record(2, nil, []uint64{0x100, 0x200}))
	if want := []shown{{"f", 11}}; !slices.Equal(s.shown(t, 1), want) {
		t.Errorf("got %+v, want %+v", s.shown(t, 1), want)
	}
	if want := []shown{{"", 0x100}, {"", 0x200}}; !slices.Equal(s.shown(t, 2), want) {
		t.Errorf("got %+v, want %+v", s.shown(t, 2), want)
	}
}

// The internal code with which CPython calls __init__ is not shown.
func TestStoreInternal(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	shim := code(0x5000, 1, "__init__", 0)
	copy(shim[unsafe.Offsetof(bpf.CodeHead{}.FileText):], "__init__")
	shim[unsafe.Offsetof(bpf.CodeHead{}.File)] = 8
	give(t, s, shim, code(0x6000, 1, "__init__", 3), record(1, nil, slices.Concat([]uint64{0x100}, python(0x6000, 1, -1), python(0x5000, 1, 2))))
	if want := []shown{{"", 0x100}, {"__init__", 3}}; !slices.Equal(s.shown(t, 1), want) {
		t.Errorf("got %+v, want %+v", s.shown(t, 1), want)
	}
}

// A runtime's frame that lacks its second word gets no function.
func TestStoreHalfFrame(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	give(t, s, record(1, nil, append([]uint64{0x100}, python(0x5000, 1, 2)[0])))
	for _, f := range s.shown(t, 1) {
		if f.name != "" {
			t.Errorf("got %+v, want no name", f)
		}
	}
}

// The bytes of functions are bounded: functions above the limit have no name. Equal
// functions count once.
func TestFunctionBytes(t *testing.T) {
	s := NewStore(nil)
	s.functions.bytes = maxFunctionBytes - len("f"+"a.py"+"\x02\x01\x02\x01") - 1
	for check, name := range []string{"f", "f", "g", "h"} {
		give(t, s, code(0x1000, uint32(check), name, 1))
	}
	if n := len(s.functions.known); n != 3 || len(s.functions.same) != 2 {
		t.Errorf("got %d functions, %d distinct; want 3, 2", n, len(s.functions.same))
	}
}

// Functions beyond the limits are counted.
func TestStoreUnkept(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	s.Readers = only(&answers{})
	give(t, s, code(0x5000, 1, "first", 10))
	next := s.Next()
	next.functions.bytes = maxFunctionBytes
	give(t, next, code(0x5000, 2, "second", 20), record(1, nil, javascript(0x6000)))
	if got := next.shown(t, 1); got[0].name != "" {
		t.Errorf("got %+v, want no name", got)
	}
	if *s.Unkept != 2 {
		t.Errorf("got %d functions that were not kept, want 2", *s.Unkept)
	}
}

// Code that has neither a file nor an identity has the reader's name, whatever its address. If the
// reader has none, its address stands for it.
func TestStoreUnidentified(t *testing.T) {
	s := NewStore(mapped(process.KindAnon))
	s.Readers = only(named{})
	give(t, s, record(1, nil, []uint64{0x1010, 0x3000}), record(2, nil, []uint64{0x1020, 0x3000}), record(3, nil, []uint64{0x2000, 0x3000}))
	for id, want := range map[uint64][]shown{
		1: {{"(RegExp)", 0}, {"", 0x3000}}, 2: {{"(RegExp)", 0}, {"", 0x3000}}, 3: {{"", 0x2000}, {"", 0x3000}},
	} {
		if got := s.shown(t, id); !slices.Equal(got, want) {
			t.Errorf("stack %d: got %+v, want %+v", id, got, want)
		}
	}
	if n := len(s.Traces); n != 2 {
		t.Errorf("got %d traces, want one for both addresses of the named code, and one for the other", n)
	}
}

// The process's own description of its code counts more than a reader's name.
func TestStoreUnidentifiedDescribed(t *testing.T) {
	s := NewStore(jitted{})
	s.Readers = only(named{})
	give(t, s, record(1, nil, []uint64{0x1010}))
	if got, want := s.shown(t, 1), []shown{{"", 0x1010}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v, which the jitdump file names", got, want)
	}
}

// jitted resolves all addresses to JIT code of a process with a jitdump file.
type jitted struct{}

func (jitted) Resolve(_ int, addr, _ uint64) process.Location {
	return process.Location{Kind: process.KindAnon, Offset: addr, JITDumps: &process.JITDumps{}}
}

// named is a reader that names the code from 0x1000 to 0x1fff.
type named struct{}

func (named) Places(f runtimes.Frame) ([]runtimes.Place, bool) {
	if f.Address != 0 || !f.Compiled || f.PC < 0x1000 || f.PC >= 0x2000 {
		return nil, true
	}
	return []runtimes.Place{{Function: runtimes.Code{Kind: bpf.RuntimeV8, Name: "(RegExp)"}}}, true
}

func (named) Kept() int { return 0 }

// mapped resolves all addresses to mappings of a kind.
type mapped process.Kind

func (m mapped) Resolve(_ int, addr, _ uint64) process.Location {
	return process.Location{Kind: process.Kind(m), Offset: addr}
}
