// Package cpython finds the layout of CPython 3.9 to 3.15, which the kernel side
// (bpf/python.h) needs, and the lines of code objects.
//
// A file has CPython if it exports _PyRuntime, or if it has a section for _PyRuntime, as programs
// that embed CPython without exporting it do. From 3.13 on, _PyRuntime begins with the
// offsets of fields (struct _Py_DebugOffsets in Include/internal/pycore_debug_offsets.h). For
// earlier versions, this package has a table of the offsets in their headers.
package cpython

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/elffile"
)

// Runtime is CPython.
type Runtime struct{}

// Name implements [runtimes.Runtime].
func (Runtime) Name() string { return "python" }

// ReadsMemory implements [runtimes.Runtime].
func (Runtime) ReadsMemory() bool { return false }

// Internal implements [runtimes.Runtime]. Internal code is the shim that calls __init__ from
// 3.13 on (_Py_InitCleanup in Python/specialize.c). Tracebacks leave it out too.
func (Runtime) Internal(c *runtimes.Code) bool {
	const shim = "__init__"
	return c.Name == shim && c.File == shim && c.FirstLine == 0
}

// The supported versions are 3.oldest to 3.newest.
const (
	oldest = 9
	newest = 15
)

// Detect implements [runtimes.Runtime].
func (Runtime) Detect(f *elffile.File) (*runtimes.Build, error) {
	symbols, err := newTable(f)
	if err != nil {
		return nil, err
	}
	runtime, ok, err := symbols.find("_PyRuntime")
	if err != nil {
		return nil, err
	}
	if !ok {
		return withoutRuntime(f)
	}
	v, err := readVersion(f, symbols, runtime)
	if err != nil {
		return nil, err
	}
	b := &runtimes.Build{Version: v.String()}
	switch {
	case v.minor < oldest:
		b.Unknown = tooOld
		return b, nil
	case v.major != 3 || v.minor > newest:
		b.Unknown = fmt.Sprintf("python %d.%d: not supported yet, its functions are not shown", v.major, v.minor)
		return b, nil
	case v.freeThreaded:
		b.Unknown = fmt.Sprintf("python %d.%d, free-threaded: not supported yet, its functions are not shown", v.major, v.minor)
		return b, nil
	}
	layout, ok := layouts[v.minor], true
	if v.offsets != nil {
		layout, ok = fromDebugOffsets(v.minor, v.offsets)
	}
	code, hasCode, err := symbols.find("PyCode_Type")
	if err != nil {
		return nil, err
	}
	eval, hasEval, err := symbols.find("_PyEval_EvalFrameDefault")
	if err != nil {
		return nil, err
	}
	if !ok || !hasCode || !hasEval {
		b.Unknown = fmt.Sprintf("python %s: its layout is not known, its functions are not shown", v)
		return b, nil
	}
	layout.Runtime, layout.CodeType, layout.Minor = runtime.Value, code.Value, uint8(v.minor)
	thread := listed
	if f.Machine() == elf.EM_X86_64 {
		thread = byKey
		if v.minor >= 15 {
			if thread, layout.Local, err = findState(f, symbols); err != nil {
				return nil, err
			}
		}
	}
	layout.Interpreter = bpf.RuntimeRange{Start: eval.Value, End: eval.Value + eval.Size}
	b.Entry = bpf.RuntimeProcess{Kinds: 1 << bpf.RuntimePython, Python: layout}
	b.Place = func(e *bpf.RuntimeProcess, bias uint64, glibc bool) {
		runtimes.PlaceRange(&e.Python.Interpreter, bias)
		e.Python.Runtime += bias
		e.Python.CodeType += bias
		e.Python.Thread = thread
		switch {
		case thread == byLocal:
			runtimes.PlaceLocal(&e.Python.Local, bias, glibc)
		case !glibc:
			e.Python.Thread = listed
		}
	}
	return b, nil
}

// tooOld is the note about versions before 3.oldest.
const tooOld = "python before 3.9: its functions are not shown"

// withoutRuntime returns the build of a file without the symbol _PyRuntime: an unknown one if it has
// CPython, otherwise nil.
func withoutRuntime(f *elffile.File) (*runtimes.Build, error) {
	if f.Section(runtimeSection) != nil {
		return &runtimes.Build{Unknown: "python without symbols: its functions are not shown"}, nil
	}
	for _, name := range []string{"PyEval_EvalFrameEx", "Py_GetVersion"} { // up to 3.6
		if _, ok, err := f.DynamicSymbol(name); err != nil || !ok {
			return nil, err
		}
	}
	return &runtimes.Build{Unknown: tooOld}, nil
}

// runtimeSection is the section of _PyRuntime, from 3.10 on.
const runtimeSection = ".PyRuntime"

// table finds the interpreter's symbols.
type table struct {
	file   *elffile.File
	static map[string]elffile.Symbol // nil if the file exports them
}

// newTable returns the symbols of f. Few files have a section for _PyRuntime without exporting it, so
// that fulgur does not search .symtab of the others.
func newTable(f *elffile.File) (t table, err error) {
	t.file = f
	if _, ok, err := f.DynamicSymbol("_PyRuntime"); err != nil || ok || f.Section(runtimeSection) == nil {
		return t, err
	}
	names := slices.Clone(versionSymbols)
	t.static, err = f.StaticSymbols(append(names, "_PyRuntime", "PyCode_Type", "_PyEval_EvalFrameDefault", stateFunction)...)
	return t, err
}

// find returns the symbol with the given name, and false if there is none.
func (t table) find(name string) (elffile.Symbol, bool, error) {
	if t.static == nil {
		return t.file.DynamicSymbol(name)
	}
	s, ok := t.static[name]
	return s, ok, nil
}

// Functions that newTable searches for, too.
const (
	sinceV310     = "PyIter_Send"
	sinceV309     = "PyFrame_GetCode"
	stateFunction = "PyGILState_GetThisThreadState"
)

// versionSymbols are the symbols that readVersion needs.
var versionSymbols = []string{"Py_Version", sinceV310, sinceV309}

// version is a version of CPython.
type version struct {
	major, minor, micro int // micro is -1 if unknown
	freeThreaded        bool
	offsets             []byte // struct _Py_DebugOffsets, from 3.13 on
}

func (v version) String() string {
	if v.micro < 0 {
		return fmt.Sprintf("%d.%d", v.major, v.minor)
	}
	return fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.micro)
}

// cookie is the start of _PyRuntime from 3.13 on.
const cookie = "xdebugpy"

// readVersion reads the version from _PyRuntime (from 3.13 on) or Py_Version (from 3.11 on).
// It recognizes older versions by symbols that they introduced.
func readVersion(f *elffile.File, symbols table, runtime elffile.Symbol) (version, error) {
	const size = 8 * maxOffsets
	if b, err := runtimes.Contents(f, runtime.Value, size); err == nil && string(b[:8]) == cookie {
		v := fromHex(binary.LittleEndian.Uint64(b[8:]))
		v.freeThreaded = binary.LittleEndian.Uint64(b[16:]) != 0
		v.offsets = b
		return v, nil
	}
	s, ok, err := symbols.find("Py_Version")
	if err != nil {
		return version{}, err
	}
	if ok {
		b, err := runtimes.Contents(f, s.Value, 4)
		if err != nil {
			return version{}, err
		}
		return fromHex(uint64(binary.LittleEndian.Uint32(b))), nil
	}
	for _, first := range []struct {
		symbol string
		minor  int
	}{{sinceV310, 10}, {sinceV309, 9}} {
		if _, ok, err := symbols.find(first.symbol); err != nil || ok {
			return version{major: 3, minor: first.minor, micro: -1}, err
		}
	}
	return version{major: 3, minor: oldest - 1, micro: -1}, nil
}

// fromHex decodes PY_VERSION_HEX.
func fromHex(hex uint64) version {
	return version{major: int(hex >> 24 & 0xff), minor: int(hex >> 16 & 0xff), micro: int(hex >> 8 & 0xff)}
}

// Ways to find a thread's state; see enum python_thread of bpf/runtime_maps.h.
const (
	listed  = uint8(bpf.UnwindPythonThreadPYTHON_BY_LIST)
	byKey   = uint8(bpf.UnwindPythonThreadPYTHON_BY_KEY)
	byLocal = uint8(bpf.UnwindPythonThreadPYTHON_BY_LOCAL)
)

// findState finds the thread-local variable of the thread's state in CPython 3.15 for amd64, which
// PyGILState_GetThisThreadState loads. If its code is unknown, findState returns listed.
func findState(f *elffile.File, symbols table) (thread uint8, local bpf.RuntimeLocal, err error) {
	s, ok, err := symbols.find(stateFunction)
	if err != nil || !ok {
		return listed, local, err
	}
	code, err := runtimes.Function(f, s)
	if err != nil {
		return listed, local, err
	}
	if local, ok = runtimes.FindLocal(code, s.Value); !ok {
		return listed, local, nil
	}
	return byLocal, local, nil
}
