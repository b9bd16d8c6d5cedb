package goroutines

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"fmt"
	"slices"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/events"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/gocode"
	"fulgur/internal/symbols/symbolize"
)

// program is an index of [functions].
type program = bpf.GoroutineGoroutineProgram

// Short names of programs.
const (
	park    = bpf.GoroutineGoroutineProgramGOROUTINE_PARK
	ready   = bpf.GoroutineGoroutineProgramGOROUTINE_READY
	list    = bpf.GoroutineGoroutineProgramGOROUTINE_LIST
	execute = bpf.GoroutineGoroutineProgramGOROUTINE_EXECUTE
)

// functions are the functions of Go's runtime that have breakpoints, by program.
var functions = [...]string{
	park:    "runtime.gopark",
	ready:   "runtime.ready",
	list:    "runtime.injectglist",
	execute: "runtime.execute",
}

// goRuntime is Go's runtime in a file: in a program, or in a shared library.
type goRuntime struct {
	release *release
	// places are the offsets of the breakpoints in the file, by program, and codes the instructions there.
	places [len(functions)]uint64
	codes  [len(functions)][]byte
	// own are the functions of the runtime, sorted, and entry the one in which every goroutine begins.
	own   []extent
	entry extent
}

// extent is the code of a function: offsets in the file.
type extent struct {
	start, end uint64
	// user means that goroutines that begin here belong to the program.
	user bool
}

// firstCode is the number of bytes that decide how the kernel treats a breakpoint.
const firstCode = 8

// maxOwn limits the functions of a runtime, of which there are some thousands.
const maxOwn = 1 << 16

// findRuntime returns the runtime in a file of a Go program. The error is the reason if its goroutines cannot be
// measured.
func findRuntime(f *elffile.File) (*goRuntime, error) {
	info, err := buildinfo.Read(f.Reader())
	if err != nil {
		return nil, fmt.Errorf("its version of Go is unknown: %w", err)
	}
	r := &goRuntime{}
	if r.release, err = releaseOf(info.GoVersion); err != nil {
		return nil, err
	}
	if err := r.findFunctions(f); err != nil {
		return nil, err
	}
	inlined, into, err := symbolize.GoInlined(f, functions[:]...)
	if err != nil {
		return nil, err
	}
	if inlined != "" {
		return nil, fmt.Errorf("%s is inlined in %s, so that its calls cannot be seen: build without a profile (-pgo=off)", inlined, into)
	}
	return r, nil
}

// findFunctions finds the functions of the runtime in Go's own table, which stripped programs have, too.
func (r *goRuntime) findFunctions(f *elffile.File) error {
	var starts [len(functions)]uint64
	err := symbolize.GoFunctions(f, func(fn symbolize.GoFunction) bool {
		if !bytes.HasPrefix(fn.Name, []byte("runtime.")) {
			return true
		}
		start, ok := f.Offset(fn.Start)
		if !ok {
			return true
		}
		name := string(fn.Name)
		own := extent{start, start + fn.End - fn.Start, userEntries[name]}
		r.own = append(r.own, own)
		if name == "runtime.goexit" || name == "runtime.goexit.abi0" {
			r.entry = own
		}
		if i := slices.Index(functions[:], name); i >= 0 {
			starts[i] = start
		}
		return len(r.own) < maxOwn
	})
	if err != nil {
		return err
	}
	slices.SortFunc(r.own, func(a, b extent) int { return cmp.Compare(a.start, b.start) })
	for i, start := range starts {
		if start == 0 {
			return fmt.Errorf("it has no function %s", functions[i])
		}
		code, err := f.Bytes(int64(start), gocode.Prologue+firstCode, "function")
		if err != nil {
			return err
		}
		skip := gocode.AfterStackCheck(f.Machine(), code[:gocode.Prologue])
		r.places[i], r.codes[i] = start+skip, code[skip:skip+firstCode]
		if err := events.CheckNOP(f, r.places[i]); err != nil {
			return fmt.Errorf("%s cannot have a breakpoint: %w", functions[i], err)
		}
	}
	return nil
}

// userEntries are the functions of the runtime in which goroutines of the program begin: isSystemGoroutine in
// runtime/traceback.go.
var userEntries = map[string]bool{"runtime.main": true, "runtime.corostart": true, "runtime.handleAsyncEvent": true}

// find returns the function of the runtime with code at an offset in the file.
func (r *goRuntime) find(offset uint64) (extent, bool) {
	i, _ := slices.BinarySearchFunc(r.own, offset, func(e extent, at uint64) int {
		if at < e.end {
			return 1
		}
		return -1
	})
	if i < len(r.own) && r.own[i].start <= offset {
		return r.own[i], true
	}
	return extent{}, false
}

// isOwn reports whether a goroutine is one of the runtime's own, by the offsets of its functions in the file, the
// innermost first. A goroutine of the runtime that runs code of the program, such as a finalizer, is not.
func (r *goRuntime) isOwn(offsets []uint64) bool {
	if n := len(offsets); n > 0 && r.entry.start <= offsets[n-1] && offsets[n-1] < r.entry.end {
		offsets = offsets[:n-1]
	}
	if len(offsets) == 0 {
		return false
	}
	for i, at := range offsets {
		fn, ok := r.find(at)
		if !ok || i == len(offsets)-1 && fn.user {
			return false
		}
	}
	return true
}
