package stacks

import (
	"fmt"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/ringbuf"
)

// Snapshot is a sample of a process without unwind tables: its registers and the top
// of its stack. It is unwound once the tables are loaded.
type Snapshot struct {
	PID int
	// Image identifies the process's image, as in package unwindmap.
	Image uint64
	// Time is when the sample was taken, in CLOCK_MONOTONIC ns.
	Time uint64
	// Open means that rules have yet to decide about the process, as in [Trace].
	Open bool
	// raw is the record without the unused part of the copy.
	raw []byte
}

// Size returns its size in bytes.
func (s Snapshot) Size() int { return len(s.raw) }

// snapshotCopy is the offset of the copy of the stack in a snapshot.
const snapshotCopy = unsafe.Offsetof(bpf.Snapshot{}.Copy)

// ParseSnapshot parses a record of the ring. It copies the data, into the memory of unneeded if
// this has any.
func ParseSnapshot(record []byte, unneeded Snapshot) (Snapshot, error) {
	if len(record) < int(snapshotCopy) {
		return Snapshot{}, fmt.Errorf("%w: snapshot of %d bytes", ringbuf.ErrRecord, len(record))
	}
	copied := field[uint32](record, unsafe.Offsetof(bpf.Snapshot{}.Copied))
	size := snapshotCopy + uintptr(copied)
	if size > min(uintptr(len(record)), unsafe.Sizeof(bpf.Snapshot{})) {
		return Snapshot{}, fmt.Errorf("%w: snapshot of %d bytes with %d bytes of stack", ringbuf.ErrRecord, len(record), copied)
	}
	const head = unsafe.Offsetof(bpf.Snapshot{}.Record)
	return Snapshot{
		PID:   int(field[uint32](record, head+unsafe.Offsetof(bpf.StackRecord{}.Pid))),
		Image: field[uint64](record, unsafe.Offsetof(bpf.Snapshot{}.Image)),
		Time:  field[uint64](record, head+unsafe.Offsetof(bpf.StackRecord{}.Time)),
		Open:  field[uint64](record, head+unsafe.Offsetof(bpf.StackRecord{}.Match)+unsafe.Offsetof(bpf.RuleMatch{}.Rules)) != 0,
		raw:   append(unneeded.raw[:0], record[:size]...),
	}, nil
}

// field returns the field at an offset of a record, without a copy of the whole record.
func field[T uint32 | uint64](record []byte, offset uintptr) T {
	return *(*T)(unsafe.Pointer(&record[offset : offset+unsafe.Sizeof(T(0))][0]))
}

// Fill fills to with the record for the kernel side, which unwinds it by a layout of the
// process, or by frame pointers if layout is 0. The unused part of the copy keeps its contents.
func (s Snapshot) Fill(to *bpf.Snapshot, layout uint64) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(to)), unsafe.Sizeof(*to)), s.raw)
	to.Layout = layout
}
