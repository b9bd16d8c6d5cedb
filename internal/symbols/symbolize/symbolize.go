// Package symbolize converts addresses into functions. It reads the symbol tables of ELF
// files, their procedure linkage tables, DWARF, Go's pclntab, /proc/kallsyms, the vDSO and
// the perf maps of JIT compilers. Package jitdump reads jitdump files.
//
// All addresses of a profile are known before the first name is needed. So callers query
// every table once, with a sorted batch of addresses, and a lookup is a single streaming pass
// over the file. No table is kept in memory, and the memory of a lookup grows with the number
// of addresses rather than symbols.
package symbolize

import "sort"

// Frame is a function at an address.
type Frame struct {
	// Name is the name to show: demangled, in the syntax of the source language, without
	// C++ parameters. It is empty for a function that has debug information but no name.
	Name string
	// SystemName is the linker name. It equals Name if nothing was mangled.
	SystemName string
	// Module is the kernel module that contains the function ("ext4"; "bpf" for BPF
	// programs). It is empty for vmlinux and for user space.
	Module string
	// File is the source file, or empty if unknown.
	File string
	// StartLine is the line where the function begins, and Line the line of the address.
	// Both are 1-based, or 0 if unknown.
	StartLine, Line int
	// Offset is the address relative to the start of the function's symbol, in bytes. For an
	// inlined function, it is relative to the start of the outermost function.
	Offset uint64
	// NoSymbol is set for a function without a symbol. Its name consists of the file's name
	// and the link-time virtual address where the function begins: "git+0x148eb0".
	NoSymbol bool
	// Inlined is set for a function that was inlined into the next frame.
	Inlined bool
}

// Table looks up the functions at addresses. Implementations are safe for concurrent use.
type Table interface {
	// LookupBatch looks up addrs, which must be sorted in ascending order. The result has one
	// element per address: the functions there, innermost first, or nil if unknown. On error,
	// the result is still usable and holds all functions that could be read.
	LookupBatch(addrs []uint64) ([][]Frame, error)
}

var (
	_ Table = (*ELF)(nil)
	_ Table = (*Kernel)(nil)
	_ Table = (*PerfMap)(nil)
)

// Options configures how names are read. The zero value has the defaults.
type Options struct {
	// NoDemangle keeps the linker names of C++ and Rust functions.
	NoDemangle bool
	// ShortNames shortens demangled names, see package shortname.
	ShortNames bool
	// NoInlines ignores debug information: no inlined functions, files or lines, but less
	// time and memory.
	NoInlines bool
}

// gaps finds the place of a symbol's start among sorted addresses. Symbol tables have long
// sorted runs, so it tries the last result first.
type gaps struct {
	addrs []uint64
	last  int
}

// after returns the index of the first address that is not below start, or len(addrs) if
// there is none.
func (g *gaps) after(start uint64) int {
	if g.last < len(g.addrs) && start <= g.addrs[g.last] && (g.last == 0 || g.addrs[g.last-1] < start) {
		return g.last
	}
	g.last = sort.Search(len(g.addrs), func(i int) bool { return g.addrs[i] >= start })
	return g.last
}
