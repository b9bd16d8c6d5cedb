package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/tracefs"
)

// counts are numbers of events of a program, by name.
type counts map[string]uint64

// sub returns c minus earlier.
func (c counts) sub(earlier counts) counts {
	diff := counts{}
	for name, n := range c {
		diff[name] = n - earlier[name]
	}
	return diff
}

// Names of counts other than system calls.
const (
	allCalls      = "system calls"
	switches      = "context switches"
	interrupts    = "IPIs"
	enabledEvents = "enabled events"
)

// calls are the system calls that are also counted one by one.
var calls = map[string]int{
	"read": unix.SYS_READ, "openat": unix.SYS_OPENAT, "bpf": unix.SYS_BPF,
	"perf_event_open": unix.SYS_PERF_EVENT_OPEN, "epoll_pwait": unix.SYS_EPOLL_PWAIT,
	"epoll_ctl": unix.SYS_EPOLL_CTL, "futex": unix.SYS_FUTEX, "membarrier": unix.SYS_MEMBARRIER,
}

// counters count events of the programs that the calling thread starts, and of their children, from
// the exec on.
type counters map[string]int // descriptors of perf events

// openCounters opens the counters. The caller's goroutine must be locked to its thread.
func openCounters() (c counters, err error) {
	trace, err := tracefs.Open()
	if err != nil {
		return nil, err
	}
	c = counters{}
	defer func() {
		err = errors.Join(err, trace.Close())
		if err != nil {
			c.close()
		}
	}()
	enter, err := trace.Tracepoint("raw_syscalls", "sys_enter")
	if err != nil {
		return c, err
	}
	ioctl, err := trace.Tracepoint("syscalls", "sys_enter_ioctl")
	if err != nil {
		return c, err
	}
	if err := c.add(switches, unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES, ""); err != nil {
		return c, err
	}
	if err := c.add(allCalls, unix.PERF_TYPE_TRACEPOINT, enter.ID, ""); err != nil {
		return c, err
	}
	for name, number := range calls {
		if err := c.add(name, unix.PERF_TYPE_TRACEPOINT, enter.ID, fmt.Sprintf("id == %d", number)); err != nil {
			return c, err
		}
	}
	if err := c.add(enabledEvents, unix.PERF_TYPE_TRACEPOINT, ioctl.ID, fmt.Sprintf("cmd == %d", unix.PERF_EVENT_IOC_ENABLE)); err != nil {
		return c, err
	}
	// Since Linux 6.6.
	if ipi, err := trace.Tracepoint("ipi", "ipi_send_cpu"); err == nil {
		return c, c.add(interrupts, unix.PERF_TYPE_TRACEPOINT, ipi.ID, "")
	}
	return c, nil
}

func (c counters) add(name string, typ uint32, config uint64, filter string) error {
	fd, err := openCounter(typ, config, filter)
	if err != nil {
		return fmt.Errorf("count %s: %w", name, err)
	}
	c[name] = fd
	return nil
}

// openCounter opens an event that counts the children of the calling thread from their exec on.
func openCounter(typ uint32, config uint64, filter string) (int, error) {
	attr := unix.PerfEventAttr{
		Type: typ, Config: config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bits: unix.PerfBitDisabled | unix.PerfBitInherit | unix.PerfBitEnableOnExec,
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil || filter == "" {
		return fd, err
	}
	text := append([]byte(filter), 0)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_SET_FILTER, uintptr(unsafe.Pointer(&text[0]))); errno != 0 {
		return -1, errors.Join(fmt.Errorf("filter %q: %w", filter, errno), unix.Close(fd))
	}
	return fd, nil
}

// read returns the counts so far.
func (c counters) read() (counts, error) {
	now := counts{}
	for name, fd := range c {
		var b [8]byte
		if _, err := unix.Read(fd, b[:]); err != nil {
			return nil, fmt.Errorf("read the counter of %s: %w", name, err)
		}
		now[name] = binary.NativeEndian.Uint64(b[:])
	}
	return now, nil
}

func (c counters) close() {
	for _, fd := range c {
		_ = unix.Close(fd) // nothing was written
	}
}
