package runtimes

import (
	"encoding/binary"
	"unsafe"

	"fulgur/internal/bpf"
)

// Thread is a stopped thread whose frames user space reads, without the kernel side.
type Thread struct {
	TID int
	// TP and SP are its thread pointer and stack pointer.
	TP, SP uint64
	// Read fills buf from the memory of its process, and reports whether it could.
	Read func(addr uint64, buf []byte) bool
	// Fresh reports whether a function of the process was not sent before, and Send sends its record, see [ParseCode], without
	// the epoch and the process.
	Fresh func(address uint64, check uint32) bool
	Send  func(record []byte)
}

// Word returns the word at an address, and whether it can be read.
func (t *Thread) Word(addr uint64) (uint64, bool) {
	var b [8]byte
	ok := t.Read(addr, b[:])
	return binary.NativeEndian.Uint64(b[:]), ok
}

// Words fills words from an address on, and reports whether it could.
func (t *Thread) Words(addr uint64, words []uint64) bool {
	return t.Read(addr, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words)))
}

// maxModules is the maximum number of modules with thread-local variables.
const maxModules = 1 << 16

// Local returns the address of a thread-local variable, or 0, as runtime_local() of bpf/runtime_frames.h.
func (t *Thread) Local(l *bpf.RuntimeLocal) uint64 {
	switch l.Model {
	case LocalByOffset:
		return t.TP + l.At
	case LocalByOffsetAt:
		if offset, ok := t.Word(l.At); ok {
			return t.TP + offset
		}
	case LocalByModule:
		var at [2]uint64 // the module's number and the offset in it
		if !t.Words(l.At, at[:]) || at[0] >= maxModules {
			return 0
		}
		vector, ok := t.Word(t.TP + 8)
		if !ok {
			return 0
		}
		if block, ok := t.Word(vector + at[0]<<(l.ModuleShift&7)); ok {
			return block + at[1]
		}
	}
	return 0
}

// CodeRecord returns the record of a function with a line table.
func CodeRecord(head *bpf.CodeHead, lines []byte) []byte {
	head.Type, head.Lines = uint32(bpf.RecordCode), uint32(len(lines))
	record := make([]byte, codeHead, codeHead+len(lines))
	copy(record, unsafe.Slice((*byte)(unsafe.Pointer(head)), codeHead))
	return append(record, lines...)
}
