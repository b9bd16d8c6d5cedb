// Package runtimes is what all language runtimes have in common: what a file says of the
// runtime in it ([Build]), and the functions that the kernel side sends ([Code]). Each
// runtime is a package of its own below, which implements [Runtime], and a header in bpf/;
// package known lists them. See docs/adding-a-runtime.md.
package runtimes

import (
	"fulgur/bpf"
	"fulgur/internal/symbols/elffile"
)

// Kind is the kernel side's number of a runtime.
type Kind = bpf.RuntimeKind

// Runtime is a language runtime whose frames the kernel side can read. Its methods are
// safe for concurrent use.
type Runtime interface {
	// Name is the name of the language, in lowercase.
	Name() string
	// Detect returns the runtime in a file that a process maps, or nil if the file has
	// none. It asks the file, not its name.
	Detect(f *elffile.File) (*Build, error)
	// Line returns the line of a position in code, 1-based, or 0 if there is none. The
	// format of the position and of the code's table is the runtime's. A position of -1
	// means that the code has not begun.
	Line(c *Code, position int) int
	// Internal reports whether code is part of the runtime, and no function of a program.
	Internal(c *Code) bool
}

// Build is a runtime in a file.
type Build struct {
	// Version is the version to show: "3.13.5".
	Version string
	// Unknown says why its frames cannot be read, or is empty if they can.
	Unknown string
	// Entry is what the kernel side has to know of a process that runs it, with
	// addresses as the file was linked.
	Entry bpf.RuntimeProcess
	// Place adds to the addresses of an entry the difference between running and
	// link-time addresses. glibc says that the process uses this C library.
	Place func(entry *bpf.RuntimeProcess, bias uint64, glibc bool)
}
