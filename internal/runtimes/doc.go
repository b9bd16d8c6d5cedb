// Package runtimes has the types that all language runtimes share. [Build] describes the
// runtime in a file, and [Code] describes a function that the kernel side sent. Each runtime
// has its own package below, which implements [Runtime], and its own header in bpf/. Package
// known lists them. See docs/adding-a-runtime.md.
package runtimes

import (
	"fulgur/internal/bpf"
	"fulgur/internal/symbols/elffile"
)

// Kind is the kernel side's number of a runtime.
type Kind = bpf.RuntimeKind

// Runtime is a language runtime whose frames the kernel side can read. Its methods are
// safe for concurrent use.
type Runtime interface {
	// Name returns the name of the language, in lowercase.
	Name() string
	// Detect returns the runtime in a file that a process maps, or nil if the file has
	// none. It reads the file's contents, not its name.
	Detect(f *elffile.File) (*Build, error)
	// Line returns the line of a position in code, 1-based, or 0 if there is none. Each
	// runtime has its own format of positions and line tables. Position -1 is before the
	// first instruction.
	Line(c *Code, position int) int
	// ReadsMemory reports whether functions are read from the memory of processes
	// ([Build.Open]), rather than sent by the kernel side.
	ReadsMemory() bool
	// Internal reports whether code is part of the runtime rather than of a program.
	Internal(c *Code) bool
}

// Build is a runtime in a file.
type Build struct {
	// Version is the version, such as "3.13.5".
	Version string
	// Unknown is the reason why fulgur cannot read the runtime's frames, or empty.
	Unknown string
	// Entry is the kernel side's entry for a process that runs the file and has no other runtime,
	// with link-time addresses.
	Entry bpf.RuntimeProcess
	// Place adds bias, the difference between running and link-time addresses, to the
	// addresses of an entry. glibc means that the process uses that C library.
	Place func(entry *bpf.RuntimeProcess, bias uint64, glibc bool)
	// Open completes an entry after Place has adjusted it, and returns a reader of the
	// process's functions. It returns [ErrNotReady] if the runtime has not started yet, and
	// an [UnknownError] if fulgur cannot read its frames. Open is nil if the kernel side
	// sends functions.
	Open func(entry *bpf.RuntimeProcess, bias uint64, m Memory) (Reader, error)
}
