package oncpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"fulgur/bpf"
	"fulgur/internal/capture/stacks"
)

// Snapshot is a sample of a process that had no unwind tables yet: its registers and
// the top of its stack. [Source.Again] takes it when they are there.
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
	snapshotSize   = int(unsafe.Sizeof(bpf.OnCPUSnapshot{}))
	snapshotImage  = int(unsafe.Offsetof(bpf.OnCPUSnapshot{}.Image))
	snapshotLayout = int(unsafe.Offsetof(bpf.OnCPUSnapshot{}.Layout))
	snapshotCopied = int(unsafe.Offsetof(bpf.OnCPUSnapshot{}.Copied))
	snapshotCopy   = int(unsafe.Offsetof(bpf.OnCPUSnapshot{}.Copy))
	snapshotRecord = int(unsafe.Offsetof(bpf.OnCPUSnapshot{}.Record))
	snapshotTime   = snapshotRecord + int(unsafe.Offsetof(bpf.OnCPUSnapshot{}.Record.Time))
	snapshotPID    = snapshotRecord + int(unsafe.Offsetof(bpf.OnCPUSnapshot{}.Record.Pid))
)

// ParseSnapshot reads a record of the ring. It copies what it keeps.
func ParseSnapshot(record []byte) (Snapshot, error) {
	if len(record) < snapshotCopy {
		return Snapshot{}, fmt.Errorf("%w: snapshot of %d bytes", stacks.ErrRecord, len(record))
	}
	native := binary.NativeEndian
	copied := int(native.Uint32(record[snapshotCopied:]))
	if copied > min(len(record), snapshotSize)-snapshotCopy {
		return Snapshot{}, fmt.Errorf("%w: snapshot of %d bytes with %d bytes of stack", stacks.ErrRecord, len(record), copied)
	}
	return Snapshot{
		PID:   int(native.Uint32(record[snapshotPID:])),
		Image: native.Uint64(record[snapshotImage:]),
		Time:  native.Uint64(record[snapshotTime:]),
		raw:   bytes.Clone(record[:snapshotCopy+copied]),
	}, nil
}

// Rewalk takes the sample of a snapshot: it is walked by a layout of its process, or
// by frame pointers if that is 0, and counted as all others.
func (s *Source) Rewalk(sn Snapshot, layout uint64) error {
	whole := make([]byte, snapshotSize)
	copy(whole, sn.raw)
	binary.NativeEndian.PutUint64(whole[snapshotLayout:], layout)
	if err := s.Maps[bpf.OnCPUMapSnapshotBack].Put(uint32(0), whole); err != nil {
		return fmt.Errorf("hand a snapshot back to the kernel: %w", err)
	}
	if _, err := s.Programs[bpf.OnCPUProgOncpuAgain].Run(&ebpf.RunOptions{}); err != nil {
		return fmt.Errorf("walk the stack of a snapshot: %w", err)
	}
	return nil
}
