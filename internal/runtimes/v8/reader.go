package v8

import (
	"time"

	"fulgur/internal/runtimes"
)

// Limits on the data that a reader caches per process. Real programs stay below them.
const (
	maxFunctions = 1 << 15
	maxScripts   = 1 << 12
	maxKept      = 32 << 20 // bytes of lines and tables
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
	codes     []*compiled     // sorted by start
	codeMap   uint64          // the first word of all objects before instructions, once known
	kept      int             // bytes of lines and tables
	misses    map[uint64]bool // addresses without code since missed
	missed    time.Time
	now       func() time.Time
}

func newReader(l layout, m runtimes.Memory) *reader {
	return &reader{
		heap: heap{l, m}, functions: map[runtimes.Identity]*function{}, scripts: map[scriptKey]script{},
		misses: map[uint64]bool{}, now: time.Now,
	}
}

// keep counts bytes that the reader is about to cache. Above the limit, it empties the caches
// first.
func (r *reader) keep(bytes int) {
	if r.kept+bytes > maxKept || len(r.functions) >= maxFunctions || len(r.scripts) >= maxScripts || len(r.codes) >= maxCodes {
		clear(r.functions)
		clear(r.scripts)
		r.codes, r.kept = nil, 0
	}
	r.kept += bytes
}

// Sizes of cached objects, without their lines and tables.
const (
	functionSize = 256
	codeSize     = 512
)

// Kept implements [runtimes.Reader].
func (r *reader) Kept() int {
	return r.kept + functionSize*len(r.functions) + codeSize*len(r.codes)
}

// Places implements [runtimes.Reader].
func (r *reader) Places(f runtimes.Frame) (places []runtimes.Place, final bool) {
	if f.Address == 0 {
		places, err := r.regexpAt(f.PC)
		return places, answered(err)
	}
	own, err := r.function(f.Identity)
	if err != nil {
		return nil, false
	}
	place := runtimes.Place{Function: own.code}
	switch {
	case f.Compiled:
		places, err := r.inlined(f, own)
		if len(places) > 0 {
			return places, true
		}
		return []runtimes.Place{place}, err == nil
	case f.Position >= 0:
		err := r.retry(own)
		// Positions count from the tagged pointer to the BytecodeArray.
		at, _ := r.positions.position(own.table, f.Position-(r.bytecodeData-1))
		place.Line = own.lines.at(at)
		return []runtimes.Place{place}, err == nil
	}
	return []runtimes.Place{place}, true
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
	r.keep(0)
	r.functions[id] = f
	return f, nil
}

// maxRetries bounds the attempts to read a source position table, which V8 may create later.
const maxRetries = 16

// retry reads the source position table of a function if V8 had not created it at the last
// attempt. It returns an error if the memory could not be read.
func (r *reader) retry(f *function) error {
	if f.table != nil || f.tries >= maxRetries {
		return nil
	}
	shared, err := r.shared(f.identity)
	if err == nil {
		f.table, err = r.bytecode(shared.at(r.sharedData)) // V8 may never create it
		r.keep(len(f.table))
	}
	if !answered(err) {
		return err
	}
	f.tries++
	return nil
}
