package stacks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"

	"fulgur/bpf"
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

// What is where in a struct snapshot of bpf/snapshot.h.
const (
	snapshotSize   = int(unsafe.Sizeof(bpf.Snapshot{}))
	snapshotImage  = int(unsafe.Offsetof(bpf.Snapshot{}.Image))
	snapshotLayout = int(unsafe.Offsetof(bpf.Snapshot{}.Layout))
	snapshotCopied = int(unsafe.Offsetof(bpf.Snapshot{}.Copied))
	snapshotCopy   = int(unsafe.Offsetof(bpf.Snapshot{}.Copy))
	snapshotRecord = int(unsafe.Offsetof(bpf.Snapshot{}.Record))
	snapshotTime   = snapshotRecord + int(unsafe.Offsetof(bpf.Snapshot{}.Record.Time))
	snapshotPID    = snapshotRecord + int(unsafe.Offsetof(bpf.Snapshot{}.Record.Pid))
)

// ParseSnapshot reads a record of the ring. It copies what it keeps.
func ParseSnapshot(record []byte) (Snapshot, error) {
	if len(record) < snapshotCopy {
		return Snapshot{}, fmt.Errorf("%w: snapshot of %d bytes", ErrRecord, len(record))
	}
	native := binary.NativeEndian
	copied := int(native.Uint32(record[snapshotCopied:]))
	if copied > min(len(record), snapshotSize)-snapshotCopy {
		return Snapshot{}, fmt.Errorf("%w: snapshot of %d bytes with %d bytes of stack", ErrRecord, len(record), copied)
	}
	return Snapshot{
		PID:   int(native.Uint32(record[snapshotPID:])),
		Image: native.Uint64(record[snapshotImage:]),
		Time:  native.Uint64(record[snapshotTime:]),
		raw:   bytes.Clone(record[:snapshotCopy+copied]),
	}, nil
}

// Bytes returns the record that the kernel side walks by a layout of the process, or by
// frame pointers if that is 0.
func (s Snapshot) Bytes(layout uint64) []byte {
	whole := make([]byte, snapshotSize)
	copy(whole, s.raw)
	binary.NativeEndian.PutUint64(whole[snapshotLayout:], layout)
	return whole
}
