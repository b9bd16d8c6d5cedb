package perfevent

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Event is an open perf event. Its methods may be called concurrently, except for Close.
type Event struct {
	fd   int
	attr Attr
	ring *Ring

	// The values of the last call of Stalled.
	enabled uint64
	asked   bool

	link int // descriptor of a BPF link, 0 if there is none
}

// Open opens an event on thread pid (0: the calling thread, -1: all threads) and cpu (-1:
// all CPUs, which requires a pid). Errors are of type [*OpenError].
func Open(attr Attr, pid, cpu int) (*Event, error) {
	fd, err := unix.PerfEventOpen(attr.raw(), pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, &OpenError{Attr: attr, PID: pid, CPU: cpu, Err: err}
	}
	return &Event{fd: fd, attr: attr}, nil
}

// TryUser is [Try] for user code only.
func TryUser(s Spec) error {
	s.ExcludeKernel = true
	return Try(s)
}

// Try reports whether the calling thread can be sampled by an event. Errors are of type [*OpenError].
func Try(s Spec) error {
	attr := s.Attr()
	attr.Disabled, attr.Period = true, 1e6
	event, err := Open(attr, 0, -1)
	if err != nil {
		return err
	}
	return event.Close()
}

// FD returns the event's file descriptor, owned by the event. It polls as readable once
// the ring has reached its watermark.
func (e *Event) FD() int { return e.fd }

// AttachBPF attaches the BPF program with descriptor progFD (of type perf_event). The
// program runs at every sample until the event is closed.
func (e *Event) AttachBPF(progFD int) error {
	if err := unix.IoctlSetInt(e.fd, unix.PERF_EVENT_IOC_SET_BPF, progFD); err != nil {
		return fmt.Errorf("attach BPF program to perf event: %w", err)
	}
	return nil
}

// LinkBPF is like [Event.AttachBPF] for a program that gets the cookie from
// bpf_get_attach_cookie(). It needs Linux 5.15.
func (e *Event) LinkBPF(progFD int, cookie uint64) error {
	// The part of union bpf_attr for BPF_LINK_CREATE.
	attr := struct {
		program, target, attachType, flags uint32
		cookie                             uint64
	}{uint32(progFD), uint32(e.fd), unix.BPF_PERF_EVENT, 0, cookie}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_LINK_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return fmt.Errorf("link BPF program to perf event: %w", errno)
	}
	e.link = int(fd)
	return nil
}

// ID returns the event's ID, which samples contain if [Attr.SampleType] has PERF_SAMPLE_IDENTIFIER. The events that
// threads inherit from it have the same ID.
func (e *Event) ID() (id uint64, err error) {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e.fd), unix.PERF_EVENT_IOC_ID, uintptr(unsafe.Pointer(&id))); errno != 0 {
		return 0, fmt.Errorf("read the ID of a perf event: %w", errno)
	}
	return id, nil
}

// SendTo makes the kernel write the records of the event to the ring of another event on the same CPU, with the same
// clock and the same layout. The ring stays in use until both events are closed.
func (e *Event) SendTo(to *Event) error {
	if err := unix.IoctlSetInt(e.fd, unix.PERF_EVENT_IOC_SET_OUTPUT, to.fd); err != nil {
		return fmt.Errorf("send records of a perf event to the ring of another: %w", err)
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

// Refresh starts the event, and lets the kernel stop it after the given number of samples. In Linux 6.16
// and newer, it then cannot be started again.
func (e *Event) Refresh(samples int) error {
	if err := unix.IoctlSetInt(e.fd, unix.PERF_EVENT_IOC_REFRESH, samples); err != nil {
		return fmt.Errorf("enable perf event for %d samples: %w", samples, err)
	}
	return nil
}

// Disable stops the event. It can be enabled again.
func (e *Event) Disable() error {
	if err := unix.IoctlSetInt(e.fd, unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
		return fmt.Errorf("disable perf event: %w", err)
	}
	return nil
}

// Reading is the value of an event's counter.
type Reading struct {
	// Count is the number of events, in ns for clocks.
	Count uint64
	// Enabled is how long the event has been enabled, in ns.
	Enabled uint64
}

// Read returns the event's counter.
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

// Stalled reports whether the event has made no progress since the last call. An enabled
// event stalls for good when its CPU goes offline: it does not resume when the CPU comes
// back.
func (e *Event) Stalled() bool {
	r, err := e.Read()
	stalled := err == nil && e.asked && r.Enabled == e.enabled
	e.enabled, e.asked = r.Enabled, true
	return stalled
}

// Close stops the event and releases it and its ring. Further calls do nothing.
func (e *Event) Close() error {
	if e.fd < 0 {
		return nil
	}
	var ringErr error
	if e.ring != nil {
		ringErr = e.ring.unmap()
	}
	if e.link > 0 {
		_ = unix.Close(e.link) // nothing was written
	}
	fd := e.fd
	e.fd, e.ring, e.link = -1, nil, 0
	if err := unix.Close(fd); err != nil {
		return os.NewSyscallError("close perf event", err)
	}
	return ringErr
}
