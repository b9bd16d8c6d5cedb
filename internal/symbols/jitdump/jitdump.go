// Package jitdump reads jitdump files, in which JIT compilers describe the code that they
// compile for "perf inject --jit" (Linux,
// tools/perf/Documentation/jitdump-specification.txt): .NET, V8 (--perf-prof), LLVM, the JVM
// with perf's agent, CPython (-X perf_jit), Wasmtime and others. Unlike a perf map, a jitdump
// file has source lines, and timestamps, so that an address can belong to different functions
// over time.
//
// A [Scanner] follows a growing file, and copies the parts needed for names: everything but
// the machine code, which makes up most of the file. A [Table] is such a copy, and [Lookup]
// looks up functions in it.
package jitdump

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// magic is "JiTD" as a number, in the byte order of the writer.
const magic = 0x4A695444

// version is the newest version of the format.
const version = 1

// Flags of the file.
const flagArchTimestamp = 1 // timestamps are from the processor's counter

// Types of records.
const (
	recordLoad      = 0
	recordMove      = 1
	recordDebugInfo = 2
)

// Sizes of fixed parts, in bytes.
const (
	headerSize = 40
	prefixSize = 16 // of each record
	loadSize   = 56 // with prefix; the name and the code follow
	moveSize   = 64 // with prefix
	debugSize  = 32 // with prefix; entries follow
	entrySize  = 16 // without its file name
	padding    = 8  // a record may be padded by fewer bytes
)

const (
	// maxHeader is the largest accepted header.
	maxHeader = 1 << 12
	// maxName is the maximum number of bytes to keep of a function's name.
	maxName = 1 << 12
	// maxDebug is the largest accepted line table of a function, in bytes.
	maxDebug = 1 << 20
)

// elfHeader is the size of the ELF header that perf inject once wrote before the code. V8
// adds it to the addresses in line tables.
const elfHeader = 0x40

// maxBefore is how far before its function the first line may be, in bytes. Erlang's JIT describes
// the code before the entry of a function, too; that line continues into the function.
const maxBefore = 128

// isBefore reports whether the offset of a line from its function is negative, but near.
func isBefore(offset uint64) bool { return -offset <= maxBefore && offset != 0 }

// FormatError describes why a file, or the rest of it, cannot be read.
type FormatError struct{ Problem string }

// Error implements error.
func (e *FormatError) Error() string { return e.Problem }

func formatErrorf(format string, args ...any) error {
	return &FormatError{fmt.Sprintf(format, args...)}
}

// record is a record of a file: its fixed part and, in a copy, all copied data.
type record struct {
	order binary.ByteOrder
	b     []byte
}

func (r record) u32(at int) uint32 { return r.order.Uint32(r.b[at:]) }
func (r record) u64(at int) uint64 { return r.order.Uint64(r.b[at:]) }

func (r record) id() uint32   { return r.u32(0) }
func (r record) size() uint32 { return r.u32(4) }
func (r record) time() uint64 { return r.u64(8) }

// pid returns the process that wrote a record of code.
func (r record) pid() uint32 { return r.u32(prefixSize) }

// code returns the address, the size and the index of a record of code.
func (r record) code() (start, size, index uint64) {
	if r.id() == recordMove {
		return r.u64(40), r.u64(48), r.u64(56)
	}
	return r.u64(32), r.u64(40), r.u64(48)
}

// debugStart returns the address of the function of a line table.
func (r record) debugStart() uint64 { return r.u64(prefixSize) }

// entry is an entry of a line table: the line of the code from an address on.
type entry struct {
	address uint64
	line    uint32
	file    []byte
}

// sameFile, which perf's JVMTI agent writes, stands for the file name of the previous entry.
const sameFile = "\xff"

// entries calls fn for each entry of a line table. It reports whether the table is
// well-formed.
func (r record) entries(fn func(entry)) bool {
	rest, file := r.b[debugSize:], []byte(nil)
	for range r.u64(24) {
		if len(rest) < entrySize {
			return false
		}
		e := entry{address: r.order.Uint64(rest), line: r.order.Uint32(rest[8:])}
		end := bytes.IndexByte(rest[entrySize:], 0)
		if end < 0 {
			return false
		}
		if name := rest[entrySize : entrySize+end]; string(name) != sameFile {
			file = name
		}
		e.file = file
		fn(e)
		rest = rest[entrySize+end+1:]
	}
	return len(rest) < padding
}
