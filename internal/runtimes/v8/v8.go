// Package v8 finds the layout of V8 10.2 to 14.6 in Node.js 18 to 26, which the kernel side
// (bpf/v8.h) needs, and reads the names and lines of JavaScript functions from the memory
// of processes.
//
// V8 exports constants whose names begin with v8dbg_: the offsets of fields, and the types of
// objects (tools/gen-postmortem-metadata.py). Programs without them, such as Chromium, are
// not recognized.
package v8

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/elffile"
)

// Runtime is V8.
type Runtime struct{}

// Name implements [runtimes.Runtime].
func (Runtime) Name() string { return "javascript" }

// ReadsMemory implements [runtimes.Runtime].
func (Runtime) ReadsMemory() bool { return true }

// Internal implements [runtimes.Runtime].
func (Runtime) Internal(*runtimes.Code) bool { return false }

// Line implements [runtimes.Runtime]. The reader finds lines.
func (Runtime) Line(*runtimes.Code, int) int { return 0 }

// Detect implements [runtimes.Runtime].
func (Runtime) Detect(f *elffile.File) (*runtimes.Build, error) {
	var v version
	for _, part := range []struct {
		name string
		to   *int
	}{{"major", &v.major}, {"minor", &v.minor}, {"build", &v.build}, {"patch", &v.patch}} {
		s, ok, err := f.DynamicSymbol("_ZN2v88internal7Version6" + part.name + "_E")
		if err != nil {
			return nil, err
		}
		if !ok {
			return withoutSymbols(f)
		}
		n, err := constant(f, s)
		if err != nil {
			return nil, err
		}
		*part.to = n
	}
	b := &runtimes.Build{Version: v.String()}
	if !v.supported() {
		b.Unknown = fmt.Sprintf("node with V8 %d.%d: not supported yet, its functions are not shown", v.major, v.minor)
		return b, nil
	}
	l, missing, err := readLayout(f, v)
	if err != nil {
		return nil, err
	}
	if missing != "" || f.Machine() != elf.EM_X86_64 && f.Machine() != elf.EM_AARCH64 {
		b.Unknown = fmt.Sprintf("node with V8 %s: its layout is not known, its functions are not shown", v)
		return b, nil
	}
	b.Entry = bpf.RuntimeProcess{Kinds: 1 << bpf.RuntimeV8, V8: l.kernel}
	for _, s := range f.Segments() {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 {
			b.Entry.V8.Interpreter = bpf.RuntimeRange{Start: s.Addr, End: s.Addr + s.FileSize}
			break
		}
	}
	b.Place = func(e *bpf.RuntimeProcess, bias uint64, _ bool) {
		runtimes.PlaceRange(&e.V8.Interpreter, bias)
	}
	b.Open = func(_ *bpf.RuntimeProcess, _ uint64, m runtimes.Memory) (runtimes.Reader, error) {
		return newReader(l, m), nil
	}
	return b, nil
}

// withoutSymbols returns the runtime of a file that does not export V8's version: an unknown
// one if the file loads extensions of Node.js, or else nil.
func withoutSymbols(f *elffile.File) (*runtimes.Build, error) {
	_, extends, err := f.DynamicSymbol("node_module_register")
	if err != nil || !extends {
		return nil, err
	}
	_, isNode, err := f.DynamicSymbol("_ZN4node5StartEiPPc") // node::Start(int, char**), also in Electron
	if err != nil {
		return nil, err
	}
	// Bun has this section for the program that bun build --compile adds.
	what := "a JavaScript runtime other than node, such as deno"
	switch {
	case f.Section(".bun") != nil:
		what = "bun, with JavaScriptCore"
	case isNode:
		what = "node without V8's v8dbg_ symbols"
	}
	return &runtimes.Build{Unknown: what + ": its JavaScript functions are not shown"}, nil
}

// version is a version of V8.
type version struct{ major, minor, build, patch int }

func (v version) String() string {
	return fmt.Sprintf("%d.%d.%d.%d", v.major, v.minor, v.build, v.patch)
}

// supported reports whether the layout of v is known: 10.2 is in Node.js 18, 14.6 in 26.
func (v version) supported() bool {
	oldest, newest := [2]int{10, 2}, [2]int{14, 6}
	is := [2]int{v.major, v.minor}
	return compare(is, oldest) >= 0 && compare(is, newest) <= 0
}

func compare(a, b [2]int) int {
	if a[0] != b[0] {
		return a[0] - b[0]
	}
	return a[1] - b[1]
}

// constant returns the value of a C int. A constant of 0 may be in .bss and have no contents.
func constant(f *elffile.File, s elffile.Symbol) (int, error) {
	at, ok := f.Offset(s.Value)
	if !ok {
		return 0, nil
	}
	b, err := f.Bytes(int64(at), 4, "a constant of V8")
	if err != nil {
		return 0, err
	}
	return int(int32(binary.LittleEndian.Uint32(b))), nil
}
