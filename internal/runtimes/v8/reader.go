package v8

import "fulgur/internal/runtimes"

// Limits on what a reader keeps of a process. Real programs stay below them.
const (
	maxFunctions = 1 << 15
	maxScripts   = 1 << 12
	maxSources   = 64 << 20 // bytes of scripts that are searched for lines
)

// scriptKey identifies a Script by its address and contents: scripts may move.
type scriptKey struct {
	object   uint64
	contents [maxScript]byte
}

// reader implements [runtimes.Reader].
type reader struct {
	heap
	functions map[runtimes.Identity]*function
	scripts   map[scriptKey]script
	sources   int
}

func newReader(l layout, m runtimes.Memory) *reader {
	return &reader{heap: heap{l, m}, functions: map[runtimes.Identity]*function{}, scripts: map[scriptKey]script{}}
}

// Places implements [runtimes.Reader].
func (r *reader) Places(f runtimes.Frame) []runtimes.Place {
	own, ok := r.functions[f.Identity]
	if !ok {
		var err error
		if own, err = r.read(f.Identity); err != nil {
			return nil
		}
		if len(r.functions) >= maxFunctions {
			clear(r.functions)
		}
		r.functions[f.Identity] = own
	}
	line := 0
	if f.Position >= 0 && !f.Compiled {
		r.retry(own)
		// Positions count from the tagged pointer to the BytecodeArray.
		at, _ := r.positions.position(own.table, f.Position-(r.bytecodeData-1))
		line = own.lines.at(at)
	}
	return []runtimes.Place{{Function: own.code, Line: line}}
}

// maxRetries bounds the attempts to read a table that V8 makes late.
const maxRetries = 16

// retry reads the source position table of a function if V8 had not made it the last time.
func (r *reader) retry(f *function) {
	if f.table != nil || f.tries >= maxRetries {
		return
	}
	f.tries++
	if shared, err := r.shared(f.identity); err == nil {
		f.table, _ = r.bytecode(shared.at(r.sharedData)) // it may be missing for good
	}
}
