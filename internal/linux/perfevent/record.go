package perfevent

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Record is a record from a ring: one of [Sample], [Mmap2], [Comm], [Fork], [Exit], [Switch], [Lost],
// [Throttle], [Unthrottle], [Cgroup] or [Other].
type Record interface {
	// When returns the record's time in nanoseconds: on CLOCK_MONOTONIC if the event
	// requested that clock, or 0 if it did not request times.
	When() uint64
}

// Stamp is the time of a record, in nanoseconds. All records embed it.
type Stamp struct{ Time uint64 }

// When implements [Record].
func (s Stamp) When() uint64 { return s.Time }

// Mmap2 reports a mapping that is new and executable, or that became executable.
type Mmap2 struct {
	Stamp
	PID, TID int
	// Addr and Len are the mapping's address and length, and Pgoff is the file offset of
	// Addr, all in bytes.
	Addr, Len, Pgoff uint64
	// Maj, Min, Ino and InoGen identify the file: its file system's device, its inode,
	// and the inode's generation (0 if there is none).
	Maj, Min    uint32
	Ino, InoGen uint64
	// Prot and Flags are the arguments of mmap(2).
	Prot, Flags uint32
	// Filename is the file's path in the process's mount namespace, or a pseudo name such
	// as "//anon", "[vdso]" or "/memfd:jit (deleted)".
	Filename string
}

// Comm reports that a thread changed its name.
type Comm struct {
	Stamp
	PID, TID int
	// Exec reports whether execve(2) caused the change (see [Attr.CommExec]).
	Exec bool
	Comm string
}

// Fork reports a new thread, whose parent is thread PTID of process PPID. The
// thread leads a new process if PID differs from PPID.
type Fork struct {
	Stamp
	PID, PPID, TID, PTID int
}

// Exit reports the end of a thread. The end of thread TID == PID is usually the end of
// the process, but its other threads may live on.
type Exit struct {
	Stamp
	PID, PPID, TID, PTID int
}

// Switch reports that a thread leaves its CPU, or runs again. The IDs are 0 if the event's samples do not have them.
type Switch struct {
	Stamp
	PID, TID int
	// Out is set if the thread leaves its CPU, and Preempted if it could have run on.
	Out, Preempted bool
}

// Lost reports that N records were dropped because the ring was full.
type Lost struct {
	Stamp
	N uint64
}

// Cgroup reports that a cgroup was created: of version 2, or of the hierarchy of version 1
// that has the perf_event controller.
type Cgroup struct {
	Stamp
	// ID is the inode number of its directory.
	ID uint64
	// Path is its path from the root of the hierarchy.
	Path string
}

// Throttle reports that the kernel paused the event on a CPU because it interrupted too
// often.
type Throttle struct{ Stamp }

// Unthrottle reports that a throttled event resumes.
type Unthrottle struct{ Stamp }

// Other is a record of a type that this package does not parse.
type Other struct {
	Stamp
	// Type is the record's PERF_RECORD_ number.
	Type uint32
}

const headerSize = 8 // struct perf_event_header

// ParseRecord parses a single record, header included, in the machine's byte order. Only a [Sample] refers to b.
func (l Layout) ParseRecord(b []byte) (Record, error) {
	if len(b) < headerSize {
		return nil, fmt.Errorf("perf record: %d bytes are too few for a header", len(b))
	}
	typ := binary.NativeEndian.Uint32(b)
	misc := binary.NativeEndian.Uint16(b[4:])
	if n := int(binary.NativeEndian.Uint16(b[6:])); n != len(b) {
		return nil, fmt.Errorf("perf record of type %d: says %d bytes, has %d", typ, n, len(b))
	}
	body := b[headerSize:]
	if typ == unix.PERF_RECORD_SAMPLE { // it has its own layout, without a sample_id at its end
		s, err := l.ParseSample(body)
		if err != nil {
			return nil, fmt.Errorf("perf record: %w", err)
		}
		return s, nil
	}
	var stamp Stamp
	size, time := l.Trailer(unix.PERF_SAMPLE_TIME)
	if len(body) < size {
		return nil, fmt.Errorf("perf record of type %d: %d bytes are too few for a time", typ, len(b))
	}
	body, trailer := body[:len(body)-size], body[len(body)-size:]
	if time >= 0 {
		stamp.Time = u64(trailer, time)
	}
	if minSize := bodySize[typ]; len(body) < minSize {
		return nil, fmt.Errorf("perf record of type %d: body of %d bytes, want %d at least", typ, len(body), minSize)
	}
	switch typ {
	case unix.PERF_RECORD_MMAP2:
		// PERF_RECORD_MISC_MMAP_BUILD_ID means nothing here. [Attr] cannot request build IDs, and if
		// a newer event of another program does (perf record --buildid-mmap), the kernel also sets
		// this bit in the records of older events, although these still have a device and inode:
		// see perf_event_mmap_output in the kernel's kernel/events/core.c.
		return Mmap2{
			Stamp: stamp, PID: pid(body, 0), TID: pid(body, 4),
			Addr: u64(body, 8), Len: u64(body, 16), Pgoff: u64(body, 24),
			Maj: u32(body, 32), Min: u32(body, 36),
			Ino: u64(body, 40), InoGen: u64(body, 48),
			Prot: u32(body, 56), Flags: u32(body, 60),
			Filename: cstring(body[64:]),
		}, nil
	case unix.PERF_RECORD_COMM:
		return Comm{
			Stamp: stamp, PID: pid(body, 0), TID: pid(body, 4),
			Exec: misc&unix.PERF_RECORD_MISC_COMM_EXEC != 0,
			Comm: cstring(body[8:]),
		}, nil
	case unix.PERF_RECORD_FORK:
		return Fork{taskTime(body, stamp), pid(body, 0), pid(body, 4), pid(body, 8), pid(body, 12)}, nil
	case unix.PERF_RECORD_EXIT:
		return Exit{taskTime(body, stamp), pid(body, 0), pid(body, 4), pid(body, 8), pid(body, 12)}, nil
	case unix.PERF_RECORD_SWITCH:
		s := Switch{Stamp: stamp, Out: misc&unix.PERF_RECORD_MISC_SWITCH_OUT != 0}
		s.Preempted = s.Out && misc&unix.PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0
		if _, task := l.Trailer(unix.PERF_SAMPLE_TID); task >= 0 {
			s.PID, s.TID = pid(trailer, task), pid(trailer, task+4)
		}
		return s, nil
	case unix.PERF_RECORD_LOST:
		return Lost{stamp, u64(body, 8)}, nil // after the event's id
	case unix.PERF_RECORD_LOST_SAMPLES:
		return Lost{stamp, u64(body, 0)}, nil
	case unix.PERF_RECORD_CGROUP:
		return Cgroup{stamp, u64(body, 0), cstring(body[8:])}, nil
	case unix.PERF_RECORD_THROTTLE:
		return Throttle{Stamp{u64(body, 0)}}, nil
	case unix.PERF_RECORD_UNTHROTTLE:
		return Unthrottle{Stamp{u64(body, 0)}}, nil
	}
	return Other{stamp, typ}, nil
}

// bodySize is the length in bytes of the fixed part of each type, without the header.
var bodySize = map[uint32]int{
	unix.PERF_RECORD_MMAP2:        64,
	unix.PERF_RECORD_COMM:         8,
	unix.PERF_RECORD_FORK:         24,
	unix.PERF_RECORD_EXIT:         24,
	unix.PERF_RECORD_LOST:         16,
	unix.PERF_RECORD_LOST_SAMPLES: 8,
	unix.PERF_RECORD_CGROUP:       8,
	unix.PERF_RECORD_THROTTLE:     24,
	unix.PERF_RECORD_UNTHROTTLE:   24,
}

// taskTime returns the time of a fork or exit, from the sample_id or else from the
// record's own body.
func taskTime(body []byte, s Stamp) Stamp {
	if s.Time == 0 {
		s.Time = u64(body, 16)
	}
	return s
}

func u32(b []byte, at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
func u64(b []byte, at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }

// pid reads a process or thread ID. It is -1 for a task outside our PID namespace.
func pid(b []byte, at int) int { return int(int32(u32(b, at))) }

// cstring returns the text before the first NUL of b.
func cstring(b []byte) string {
	f := Fields{B: b}
	return f.Text()
}
