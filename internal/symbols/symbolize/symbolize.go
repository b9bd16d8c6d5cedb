// Package symbolize turns addresses into functions. It reads the symbol tables
// of ELF files, their procedure linkage tables, DWARF, Go's pclntab,
// /proc/kallsyms, the vdso and the perf maps of JIT compilers.
//
// A profile knows all addresses of a file before it needs the first name, so
// every table is asked once, with a sorted batch of addresses, and answers in
// one streaming pass over the file: no table is kept in memory, and what a
// look-up holds grows with the number of addresses, not with the number of
// symbols.
package symbolize

import "sort"

// Frame is one function at an address.
type Frame struct {
	// Name is the name to show: demangled, as the source language writes it,
	// without the parameters of C++. It is empty for a function that debug
	// information describes but does not name.
	Name string
	// SystemName is the linker's name, equal to Name if nothing was mangled.
	SystemName string
	// Module is the kernel module that holds the function ("ext4"; "bpf" for
	// BPF programs), and empty for vmlinux and for everything that is not the
	// kernel.
	Module string
	// File is the source file, empty if unknown.
	File string
	// StartLine is the 1-based line at which the function begins, Line that
	// of the address; 0 if unknown.
	StartLine, Line int
	// Offset is the address less the start of the symbol that holds it, in
	// bytes. Functions that were inlined have no symbol of their own.
	Offset uint64
	// Inlined is set for a function that was inlined into the frame that
	// follows it.
	Inlined bool
}

// Table answers which functions hold addresses. Implementations are safe for
// concurrent use.
type Table interface {
	// LookupBatch names addrs, which must be sorted in ascending order. The
	// result has one element per address: the functions there, innermost
	// first, or nil if the address could not be resolved. On an error the
	// result is still usable and holds what could be read.
	LookupBatch(addrs []uint64) ([][]Frame, error)
}

var (
	_ Table = (*ELF)(nil)
	_ Table = (*Kernel)(nil)
	_ Table = (*PerfMap)(nil)
)

// Options tunes how names are read. The zero value is the usual.
type Options struct {
	// NoDemangle leaves the names of C++ and Rust as the linker knows them.
	NoDemangle bool
	// ShortNames shows "<...>" for the arguments of templates and generics in
	// demangled names.
	ShortNames bool
	// NoInlines reads names only, no debug information: neither inlined
	// functions nor files and lines, for less time and memory.
	NoInlines bool
}

// gaps finds where a symbol's start falls between sorted addresses. Symbol
// tables are sorted in long runs, hence the last answer is tried first.
type gaps struct {
	addrs []uint64
	last  int
}

// after returns the index of the first address that is not below start, or
// len(addrs) if all are.
func (g *gaps) after(start uint64) int {
	if g.last < len(g.addrs) && start <= g.addrs[g.last] && (g.last == 0 || g.addrs[g.last-1] < start) {
		return g.last
	}
	g.last = sort.Search(len(g.addrs), func(i int) bool { return g.addrs[i] >= start })
	return g.last
}
