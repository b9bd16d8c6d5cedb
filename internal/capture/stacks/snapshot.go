package stacks

import (
	"bytes"
	"fmt"
	"unsafe"

	"fulgur/bpf"
	"fulgur/internal/linux/ringbuf"
)

// Snapshot is a sample of a process that had no unwind tables yet: its registers and
// the top of its stack. It is walked when they are there.
type Snapshot struct {
	PID int
	// Image names what the process runs, as unwindmap does.
	Image uint64
	// Time is that of the sample, CLOCK_MONOTONIC in ns.
	Time uint64
	// raw is the record without the part of the copy that does not count.
	raw []byte
}

// Size returns how many bytes it takes.
func (s Snapshot) Size() int { return len(s.raw) }

// snapshotCopy is the offset of the copy of the stack in a snapshot.
const snapshotCopy = unsafe.Offsetof(bpf.Snapshot{}.Copy)

// ParseSnapshot reads a record of the ring. It copies what it keeps.
func ParseSnapshot(record []byte) (Snapshot, error) {
	r, err := ringbuf.As[bpf.Snapshot](record, snapshotCopy)
	if err != nil {
		return Snapshot{}, err
	}
	size := snapshotCopy + uintptr(r.Copied)
	if size > min(uintptr(len(record)), unsafe.Sizeof(*r)) {
		return Snapshot{}, fmt.Errorf("%w: snapshot of %d bytes with %d bytes of stack", ringbuf.ErrRecord, len(record), r.Copied)
	}
	return Snapshot{PID: int(r.Record.Pid), Image: r.Image, Time: r.Record.Time, raw: bytes.Clone(record[:size])}, nil
}

// Bytes returns the record that the kernel side walks by a layout of the process, or by
// frame pointers if that is 0.
func (s Snapshot) Bytes(layout uint64) []byte {
	whole := new(bpf.Snapshot)
	b := unsafe.Slice((*byte)(unsafe.Pointer(whole)), unsafe.Sizeof(*whole))
	copy(b, s.raw)
	whole.Layout = layout
	return b
}
