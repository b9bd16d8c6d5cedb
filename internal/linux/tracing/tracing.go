// Package tracing stops threads of other processes, reads their state and lets them go, by ptrace(2).
//
// The kernel ties a tracee to the OS thread that attached to it: all functions about a tracee must be called on that
// thread, see [runtime.LockOSThread]. When the thread ends, by SIGKILL or by itself, the kernel detaches from its tracees
// and lets them run on.
//
// An attached thread stops for each of its signals. [Wait] leaves the signal with the thread, so that it is delivered even
// if the tracer dies then. Whoever detaches from a thread passes the signal on, see [Change.Passed].
package tracing

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Most calls below bypass Go's scheduler (RawSyscall): they return at once, and a thread stands still meanwhile.

// Call makes a ptrace request without an address.
func Call(request int, tid int, data uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), 0, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Seize attaches to a thread without stopping it. It blocks while the process is in execve, which waits for the tracers of
// its other threads: a tracer of one of them must not call it.
//
// The error is ESRCH if there is no such thread, and EPERM if it has a tracer, if this process may not trace it, or if it
// is about to end.
func Seize(tid int) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Interrupt asks a tracee to stop.
func Interrupt(tid int) error { return Call(unix.PTRACE_INTERRUPT, tid, 0) }

// Detach lets a stopped tracee run on, and delivers a signal to it unless that is 0. The error is ESRCH if it was killed
// and is ending.
func Detach(tid int, signal unix.Signal) error {
	return Call(unix.PTRACE_DETACH, tid, uintptr(signal))
}

// Info is a siginfo_t, as far as it is needed.
type Info struct {
	// Signo is the signal, and Code its origin, one of the si_codes.
	Signo int32
	_     int32
	Code  int32
	_     int32
	// PID is the sender's, or the child's of a SIGCHLD, whose state is Status.
	PID    int32
	_      int32
	Status int32
	_      [128 - 7*4]byte
}

// Delivered returns the signal for which a tracee has stopped.
func Delivered(tid int) (info Info, err error) {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(tid), 0, uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return info, errno
	}
	return info, nil
}

// Change is a tracee's change of state. The zero value is none.
type Change struct {
	// TID is the thread's ID, which execve may have changed.
	TID  int
	code int32
	how  unix.WaitStatus // why it has stopped
}

// trapped is the si_code of the SIGCHLD for a stopped tracee, CLD_TRAPPED.
const trapped = 4

// None reports that there is no change.
func (c Change) None() bool { return c.TID == 0 }

// Stopped reports that the tracee has stopped.
func (c Change) Stopped() bool { return c.code == trapped }

// Ended reports that the tracee has ended. It has to be reaped, see [Reap].
func (c Change) Ended() bool { return !c.None() && !c.Stopped() }

// Signal returns the signal for which the tracee has stopped, or SIGTRAP for a stop by [Interrupt].
func (c Change) Signal() unix.Signal { return unix.Signal(c.how & 0x7f) }

// Event reports whether the stop is ptrace's own (PTRACE_EVENT_STOP) or for SIGSTOP and similar, rather than for the
// delivery of a signal.
func (c Change) Event() bool { return c.Stopped() && c.how>>8 == unix.PTRACE_EVENT_STOP }

// Passed returns the signal to pass on when detaching, 0 if there is none.
func (c Change) Passed() unix.Signal {
	if c.Event() {
		return 0
	}
	return c.Signal()
}

// Wait returns a change of state of a tracee of this OS thread, or of any of them if tid is 0. Then this thread must not
// have started processes. With WNOHANG in options, the change may be none. The error is ECHILD if there is no such tracee.
//
// A stop is reported again until the tracee continues (WNOWAIT). So the signal for which it has stopped is not lost if
// this process ends.
func Wait(tid, options int) (Change, error) { return wait(tid, options|unix.WEXITED) }

// Stopped is like [Wait] for any tracee that has stopped, without waiting. It ignores processes that have ended, so this
// thread may have started some.
func Stopped() (Change, error) { return wait(0, unix.WNOHANG) }

func wait(tid, options int) (Change, error) {
	const all, one = 0, 1 // P_ALL, P_PID
	of := one
	if tid == 0 {
		of = all
	}
	options |= unix.WSTOPPED | unix.WNOWAIT | unix.WALL | unix.WNOTHREAD
	call := unix.Syscall6
	if options&unix.WNOHANG != 0 {
		call = unix.RawSyscall6
	}
	for {
		var info Info
		_, _, errno := call(unix.SYS_WAITID, uintptr(of), uintptr(tid), uintptr(unsafe.Pointer(&info)), uintptr(options), 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return Change{}, errno
		}
		return Change{TID: int(info.PID), code: info.Code, how: unix.WaitStatus(info.Status)}, nil
	}
}

// Reap reaps a tracee that has ended, so that its parent is notified. Do not reap a child of this process, whose exit
// status would be lost.
func Reap(tid int) { _, _ = unix.Wait4(tid, nil, unix.WALL|unix.WNOTHREAD|unix.WNOHANG, nil) }

// Read reads memory of a thread at an address into buf, and returns the part that could be read.
func Read(tid int, addr uint64, buf []byte) []byte {
	if len(buf) == 0 {
		return nil
	}
	local := unix.Iovec{Base: &buf[0]}
	local.SetLen(len(buf))
	// A part that cannot be read whole need not be read at all, so each page is a part.
	const most, page = 17, 4096 // 64 KiB of pages of any size
	var remote [most]unix.RemoteIovec
	n := 0
	for left := len(buf); left > 0 && n < most; n++ {
		size := min(left, page-int(addr%page))
		if n == most-1 {
			size = left
		}
		remote[n] = unix.RemoteIovec{Base: uintptr(addr), Len: size}
		addr, left = addr+uint64(size), left-size
	}
	read, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(tid),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote[0])), uintptr(n), 0)
	if errno != 0 {
		return nil
	}
	return buf[:read]
}

// Sleep sleeps on this OS thread. time.Sleep would involve another one.
func Sleep(ns int64) {
	ts := unix.NsecToTimespec(ns)
	_ = unix.Nanosleep(&ts, nil) // an early return does no harm
}

// IgnoreStops keeps the kernel from sending this process a SIGCHLD for each stop of a tracee or child. The tracee sends it
// while it stops, so it would stand still for longer.
func IgnoreStops() {
	const noStops = 1 // SA_NOCLDSTOP
	var action struct{ handler, flags, restorer, mask uintptr }
	size := unsafe.Sizeof(action.mask)
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), 0, uintptr(unsafe.Pointer(&action)), size, 0, 0); errno != 0 {
		return
	}
	action.flags |= noStops
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&action)), 0, size, 0, 0)
}
