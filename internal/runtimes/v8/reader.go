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
	codes     []*compiled // sorted by start
	codeMap   uint64      // the first word of objects before instructions, once known
	sources   int
}

func newReader(l layout, m runtimes.Memory) *reader {
	return &reader{heap: heap{l, m}, functions: map[runtimes.Identity]*function{}, scripts: map[scriptKey]script{}}
}

// Places implements [runtimes.Reader].
func (r *reader) Places(f runtimes.Frame) []runtimes.Place {
	own, err := r.function(f.Identity)
	if err != nil {
		return nil
	}
	place := runtimes.Place{Function: own.code}
	switch {
	case f.Compiled:
		if places := r.inlined(f, own); places != nil {
			return places
		}
	case f.Position >= 0:
		r.retry(own)
		// Positions count from the tagged pointer to the BytecodeArray.
		at, _ := r.positions.position(own.table, f.Position-(r.bytecodeData-1))
		place.Line = own.lines.at(at)
	}
	return []runtimes.Place{place}
}

// function returns the function with the given identity.
func (r *reader) function(id runtimes.Identity) (*function, error) {
	if f, ok := r.functions[id]; ok {
		return f, nil
	}
	f, err := r.read(id)
	if err != nil {
		return nil, err
	}
	if len(r.functions) >= maxFunctions {
		clear(r.functions)
	}
	r.functions[id] = f
	return f, nil
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
