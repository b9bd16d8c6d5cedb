package perfevent

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Event is an open perf event. Its methods may be called from several
// goroutines as long as none of them closes it.
type Event struct {
	fd   int
	attr Attr
	ring *Ring

	// What Stalled saw last.
	enabled uint64
	asked   bool
}

// Open opens an event on thread pid (0: the calling thread, -1: every one)
// and cpu (-1: every one, which needs a pid). groupFD is -1, or the leader of
// the event's group. The descriptor is always close-on-exec. Errors are of
// type [*OpenError].
func Open(attr Attr, pid, cpu, groupFD, flags int) (*Event, error) {
	fd, err := unix.PerfEventOpen(attr.raw(), pid, cpu, groupFD, flags|unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, &OpenError{Attr: attr, PID: pid, CPU: cpu, Err: err}
	}
	return &Event{fd: fd, attr: attr}, nil
}

// FD returns the event's file descriptor, owned by the event. It polls as
// readable when the ring has reached its watermark.
func (e *Event) FD() int { return e.fd }

// AttachBPF has the BPF program (of type perf_event) with descriptor progFD
// run at every sample, until the event is closed.
func (e *Event) AttachBPF(progFD int) error {
	if err := unix.IoctlSetInt(e.fd, unix.PERF_EVENT_IOC_SET_BPF, progFD); err != nil {
		return fmt.Errorf("attach BPF program to perf event: %w", err)
	}
	return nil
}

// Enable starts the event.
func (e *Event) Enable() error {
	if err := unix.IoctlSetInt(e.fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return fmt.Errorf("enable perf event: %w", err)
	}
	return nil
}

// Disable stops the event; it can be enabled again.
func (e *Event) Disable() error {
	if err := unix.IoctlSetInt(e.fd, unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
		return fmt.Errorf("disable perf event: %w", err)
	}
	return nil
}

// Reading is what an event counted.
type Reading struct {
	// Count is the number of events, in ns for clocks.
	Count uint64
	// Enabled is how long the event has been counting, in ns.
	Enabled uint64
}

// Read returns what the event has counted so far.
func (e *Event) Read() (Reading, error) {
	var b [16]byte
	n, err := unix.Read(e.fd, b[:])
	if err == nil && n < len(b) {
		err = io.ErrUnexpectedEOF // an event in an error state reads as empty
	}
	if err != nil {
		return Reading{}, fmt.Errorf("read perf event: %w", err)
	}
	return Reading{
		Count:   binary.NativeEndian.Uint64(b[:]),
		Enabled: binary.NativeEndian.Uint64(b[8:]),
	}, nil
}

// Stalled reports whether the event has stood still since the last call. An
// enabled event on a CPU does once its CPU went offline, and for good: it does
// not come back with its CPU.
func (e *Event) Stalled() bool {
	r, err := e.Read()
	stalled := err == nil && e.asked && r.Enabled == e.enabled
	e.enabled, e.asked = r.Enabled, true
	return stalled
}

// Close stops the event and frees it and its ring.
func (e *Event) Close() error {
	var ringErr error
	if e.ring != nil {
		ringErr = e.ring.unmap()
	}
	if err := unix.Close(e.fd); err != nil {
		return os.NewSyscallError("close perf event", err)
	}
	return ringErr
}
