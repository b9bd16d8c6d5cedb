package stacks

import (
	"bytes"
	"fmt"
	"unsafe"

	"fulgur/bpf"
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
	// raw is the record without the unused part of the copy.
	raw []byte
}

// Size returns its size in bytes.
func (s Snapshot) Size() int { return len(s.raw) }

// snapshotCopy is the offset of the copy of the stack in a snapshot.
const snapshotCopy = unsafe.Offsetof(bpf.Snapshot{}.Copy)

// ParseSnapshot parses a record of the ring. It copies the data.
func ParseSnapshot(record []byte) (Snapshot, error) {
	r, err := ringbuf.As[bpf.Snapshot](record, snapshotCopy)
	if err != nil {
		return Snapshot{}, err
	}
	size := snapshotCopy + uintptr(r.Copied)
	if size > min(uintptr(len(record)), unsafe.Sizeof(*r)) {
		return Snapshot{}, fmt.Errorf("%w: snapshot of %d bytes with %d bytes of stack", ringbuf.ErrRecord, len(record), r.Copied)
	}
	head, err := ringbuf.As[bpf.StackRecord](r.Record[:], recordHeader)
	return Snapshot{PID: int(head.Pid), Image: r.Image, Time: head.Time, raw: bytes.Clone(record[:size])}, err
}

// Fill fills to with the record for the kernel side, which unwinds it by a layout of the
// process, or by frame pointers if layout is 0. The unused part of the copy keeps its contents.
func (s Snapshot) Fill(to *bpf.Snapshot, layout uint64) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(to)), unsafe.Sizeof(*to)), s.raw)
	to.Layout = layout
}
