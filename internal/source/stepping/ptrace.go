package stepping

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below go around Go's scheduler (RawSyscall): a stop is due within
// microseconds, and handing the thread's work to another one each time costs
// more.

// trapTrace is TRAP_TRACE, the si_code of a trap after one instruction.
const trapTrace = 2

// ptrace carries out a request that has no address.
func ptrace(request int, tid int, data uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), 0, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// signalCode returns the si_code of the signal that a thread has stopped for.
func signalCode(tid int) (int32, error) {
	// siginfo_t: int si_signo, si_errno, si_code; 128 bytes.
	var info [128 / 4]int32
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(tid), 0, uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return info[2], nil
}

// trapSignal is SIGTRAP in the kernel's signal masks.
const trapSignal = 1 << (unix.SIGTRAP - 1)

// signalMask carries out a request to read or set (PTRACE_GETSIGMASK,
// PTRACE_SETSIGMASK) the signals that a stopped thread blocks.
func signalMask(request int, tid int, mask *uint64) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid),
		unsafe.Sizeof(*mask), uintptr(unsafe.Pointer(mask)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// status is a thread's change of state as wait4 tells it, none if it has not
// changed.
type status struct {
	unix.WaitStatus
	none bool
}

func (s status) ended() bool { return !s.none && (s.Exited() || s.Signaled()) }

func (s status) stopped() bool { return !s.none && s.Stopped() }

// event reports whether the stop is one of ptrace's own (PTRACE_EVENT_STOP)
// or of SIGSTOP and its kin, not the delivery of a signal.
func (s status) event() bool { return s.stopped() && s.WaitStatus>>16 == unix.PTRACE_EVENT_STOP }

// wait returns thread tid's change of state. With WNOHANG in options it may be
// none.
func wait(tid, options int) (status, error) {
	for {
		var s int32
		got, _, errno := unix.RawSyscall6(unix.SYS_WAIT4, uintptr(tid), uintptr(unsafe.Pointer(&s)), uintptr(options|unix.WALL), 0, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return status{}, errno
		}
		return status{WaitStatus: unix.WaitStatus(s), none: got == 0}, nil
	}
}

// readText reads the code at address addr of thread tid's memory into buf and
// returns what there is of it.
func readText(tid int, addr uint64, buf []byte) []byte {
	local := unix.Iovec{Base: &buf[0]}
	local.SetLen(len(buf))
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(buf)}
	n, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(tid),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	if errno != 0 {
		return nil
	}
	return buf[:n]
}
