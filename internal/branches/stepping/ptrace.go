package stepping

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Most calls below bypass Go's scheduler (RawSyscall): they return at once, and there are
// several for each instruction.

// The si_codes of the trap of a step. A process cannot send a signal with the first two to another
// process. If the instruction has a uprobe, the kernel sends the trap as if the process itself had
// called kill(2), but to the thread alone.
const (
	trapTrace      = 2 // TRAP_TRACE
	trapBreakpoint = 1 // TRAP_BRKPT: of a step if the processor gave no reason for the trap
	fromUser       = 0 // SI_USER
)

// siginfo is a siginfo_t: int si_signo, si_errno, si_code, padding, and fields that
// depend on the signal: for SIGCHLD pid, uid and status.
type siginfo struct {
	signo, _, code, _ int32
	pid, _, status    int32
	_                 [128 - 7*4]byte
}

// ptrace makes a request without an address.
func ptrace(request int, tid int, data uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), 0, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// seize attaches to a thread. It blocks while the process is in execve.
func seize(tid int) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// deliveredInfo returns the siginfo of the signal for which a thread has stopped.
func deliveredInfo(tid int) (info siginfo, err error) {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(tid), 0, uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return info, errno
	}
	return info, nil
}

// queue is a queue of pending signals, as in PTRACE_PEEKSIGINFO.
type queue uint32

const (
	ownQueue    queue = 0 // of the thread; holds the trap of a step
	sharedQueue queue = 1 // PTRACE_PEEKSIGINFO_SHARED, of the process
)

// peek reads the pending signals of a stopped thread in the order of their arrival,
// starting at index from, and returns how many it has read.
func (q queue) peek(tid, from int, infos []siginfo) (int, error) {
	args := struct { // struct ptrace_peeksiginfo_args
		off   uint64
		flags queue
		nr    int32
	}{off: uint64(from), flags: q, nr: int32(len(infos))}
	n, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_PEEKSIGINFO, uintptr(tid),
		uintptr(unsafe.Pointer(&args)), uintptr(unsafe.Pointer(&infos[0])), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// trap returns the pending SIGTRAP of a stopped thread. A queue holds at most one, and
// the one that we look for arrived late. The kernel walks the queue from its start for
// each signal requested, so the search starts at the end.
func (q queue) trap(tid int) (trap siginfo, found bool) {
	var infos [16]siginfo
	n, err := q.peek(tid, 0, infos[:])
	if err != nil {
		return siginfo{}, false // the thread is dying
	}
	end := n
	if n == len(infos) {
		end = q.length(tid, n)
	}
	for {
		for _, info := range infos[:n] {
			if info.signo == int32(unix.SIGTRAP) {
				return info, true
			}
		}
		if end <= len(infos) {
			return siginfo{}, false // reached the start
		}
		end -= len(infos)
		if n, err = q.peek(tid, end, infos[:]); err != nil {
			return siginfo{}, false
		}
	}
}

// length returns the number of pending signals, which is at least minimum.
func (q queue) length(tid, minimum int) int {
	there := func(number int) bool {
		var info [1]siginfo
		n, err := q.peek(tid, number, info[:])
		return err == nil && n == 1
	}
	// Invariant: signal number low exists, and number high does not.
	low, high := minimum-1, 2*minimum
	for there(high) {
		low, high = high, 2*high
	}
	for high-low > 1 {
		if middle := (low + high) / 2; there(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// trapSignal is SIGTRAP in the kernel's signal masks.
const trapSignal = 1 << (unix.SIGTRAP - 1)

// signalMask reads or sets the mask of blocked signals of a stopped thread
// (PTRACE_GETSIGMASK, PTRACE_SETSIGMASK).
func signalMask(request int, tid int, mask *uint64) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid),
		unsafe.Sizeof(*mask), uintptr(unsafe.Pointer(mask)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// status is a tracee's change of state, or none.
type status struct {
	pid  int // its thread ID, which execve may have changed
	code int32
	how  unix.WaitStatus // why it has stopped
}

// The si_code of the SIGCHLD for a stopped tracee.
const childTrapped = 4 // CLD_TRAPPED

func (s status) none() bool { return s.pid == 0 }

func (s status) stopped() bool { return s.code == childTrapped }

func (s status) ended() bool { return !s.none() && !s.stopped() }

// signal returns the signal for which the tracee has stopped, or SIGTRAP for a ptrace
// stop.
func (s status) signal() unix.Signal { return unix.Signal(s.how & 0x7f) }

// event reports whether the stop is ptrace's own (PTRACE_EVENT_STOP) or for SIGSTOP and
// similar, rather than for the delivery of a signal.
func (s status) event() bool { return s.stopped() && s.how>>8 == unix.PTRACE_EVENT_STOP }

// wait returns a change of state of a tracee of this OS thread. With WNOHANG in options,
// it may return none. The error is ECHILD if the thread has no tracee.
//
// A stop is reported again until the tracee continues (WNOWAIT). So the signal for which
// it has stopped is not lost if we end.
func wait(options int) (status, error) {
	const all = 0 // P_ALL
	const what = unix.WEXITED | unix.WSTOPPED | unix.WNOWAIT | unix.WALL | unix.WNOTHREAD
	for {
		var info siginfo
		_, _, errno := unix.Syscall6(unix.SYS_WAITID, all, 0, uintptr(unsafe.Pointer(&info)), uintptr(options|what), 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return status{}, errno
		}
		return status{pid: int(info.pid), code: info.code, how: unix.WaitStatus(info.status)}, nil
	}
}

// reap reaps a tracee, so that its parent is notified of its end.
func reap(pid int) { _, _ = unix.Wait4(pid, nil, unix.WALL|unix.WNOTHREAD|unix.WNOHANG, nil) }

// readText reads the code at address addr of thread tid into buf and returns the part
// that could be read.
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
