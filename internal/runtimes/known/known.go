// Package known lists the language runtimes whose frames fulgur reads.
package known

import (
	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
	"fulgur/internal/runtimes/cpython"
	"fulgur/internal/runtimes/hotspot"
	"fulgur/internal/runtimes/ruby"
	"fulgur/internal/runtimes/v8"
)

// All holds the runtimes by kind.
var All = map[runtimes.Kind]runtimes.Runtime{
	bpf.RuntimePython:  cpython.Runtime{},
	bpf.RuntimeV8:      v8.Runtime{},
	bpf.RuntimeHotSpot: hotspot.Runtime{},
	bpf.RuntimeRuby:    ruby.Runtime{},
}

// Name returns the name of the language of a kind of runtime.
func Name(kind runtimes.Kind) string {
	if r := All[kind]; r != nil {
		return r.Name()
	}
	return "unknown runtime"
}

// ReadsMemory reports whether functions of a kind are read from the memory of processes; see
// [runtimes.Runtime].
func ReadsMemory(kind runtimes.Kind) bool {
	r := All[kind]
	return r != nil && r.ReadsMemory()
}

// Internal reports whether code is part of its runtime rather than of a program; see
// [runtimes.Runtime].
func Internal(c *runtimes.Code) bool {
	r := All[c.Kind]
	return r != nil && r.Internal(c)
}

// Line returns the line of a position in code, or 0 if there is none; see
// [runtimes.Runtime].
func Line(c *runtimes.Code, position int) int {
	if r := All[c.Kind]; r != nil {
		return r.Line(c, position)
	}
	return 0
}
