package stepping

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Most calls below go around Go's scheduler (RawSyscall): they return at once,
// and there are some for each instruction.

// trapTrace is TRAP_TRACE, the si_code of a trap after one instruction. A
// process can send no other process a signal with it.
const trapTrace = 2

// siginfo is a siginfo_t: int si_signo, si_errno, si_code, a hole, and what
// depends on the signal: for SIGCHLD pid, uid and status.
type siginfo struct {
	signo, _, code, _ int32
	pid, _, status    int32
	_                 [128 - 7*4]byte
}

// isStep reports whether the signal is the trap after one instruction.
func (i *siginfo) isStep() bool { return i.signo == int32(unix.SIGTRAP) && i.code == trapTrace }

// ptrace carries out a request that has no address.
func ptrace(request int, tid int, data uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), 0, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// seize attaches to a thread. While the process is in execve, that waits.
func seize(tid int) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// deliveredInfo returns what comes with the signal that a thread has stopped
// for.
func deliveredInfo(tid int) (info siginfo, err error) {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(tid), 0, uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return info, errno
	}
	return info, nil
}

// queue is one of the two in which signals wait for a thread, as
// PTRACE_PEEKSIGINFO has it.
type queue uint32

const (
	ownQueue    queue = 0 // for the thread alone; the trap of a step waits there
	sharedQueue queue = 1 // PTRACE_PEEKSIGINFO_SHARED, for any thread of the process
)

// peek reads the signals that wait for a stopped thread, in the order in which
// they came and from number from on, and returns how many it has read.
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

// trap returns the SIGTRAP that waits for a stopped thread. There is one at most
// in a queue, and what we look for came late. The kernel walks the queue from its
// start for each signal that it is asked for, so they are looked at from the end.
func (q queue) trap(tid int) (trap siginfo, found bool) {
	var infos [16]siginfo
	n, err := q.peek(tid, 0, infos[:])
	if err != nil {
		return siginfo{}, false // it is dying
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
			return siginfo{}, false // the first of them were looked at
		}
		end -= len(infos)
		if n, err = q.peek(tid, end, infos[:]); err != nil {
			return siginfo{}, false
		}
	}
}

// length returns how many signals wait, of which there are least at least.
func (q queue) length(tid, least int) int {
	there := func(number int) bool {
		var info [1]siginfo
		n, err := q.peek(tid, number, info[:])
		return err == nil && n == 1
	}
	// Signal number low is there, number high is not.
	low, high := least-1, 2*least
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

// status is a tracee's change of state, none if there is none.
type status struct {
	pid  int // its number, which an execve may have changed
	code int32
	how  unix.WaitStatus // what it has stopped for
}

// The si_code of a SIGCHLD for a tracee that has stopped.
const childTrapped = 4 // CLD_TRAPPED

func (s status) none() bool { return s.pid == 0 }

func (s status) stopped() bool { return s.code == childTrapped }

func (s status) ended() bool { return !s.none() && !s.stopped() }

// signal is the signal that the tracee has stopped for, SIGTRAP if it has
// stopped for ptrace alone.
func (s status) signal() unix.Signal { return unix.Signal(s.how & 0x7f) }

// event reports whether the stop is one of ptrace's own (PTRACE_EVENT_STOP)
// or of SIGSTOP and its kin, not the delivery of a signal.
func (s status) event() bool { return s.stopped() && s.how>>8 == unix.PTRACE_EVENT_STOP }

// wait returns a change of state of a tracee of this OS thread. With WNOHANG in
// options it may be none. The error is ECHILD if the thread has no tracee.
//
// A stop is told again until the tracee goes on (WNOWAIT). So the signal that it
// has stopped for is not lost if we end.
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

// reap takes note of a tracee's end, so that its parent learns of it.
func reap(pid int) { _, _ = unix.Wait4(pid, nil, unix.WALL|unix.WNOTHREAD|unix.WNOHANG, nil) }

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
