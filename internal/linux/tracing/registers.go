package tracing

import "golang.org/x/sys/unix"

// Registers are the general-purpose registers of a stopped tracee.
type Registers unix.PtraceRegs

// SystemCall says what a stop does to a thread's system call.
type SystemCall uint8

const (
	// NoCall means that the thread runs its program's code.
	NoCall SystemCall = iota
	// Returns means that a system call returns, perhaps with a part of what it was to transfer.
	Returns
	// Restarts means that the thread waited, or was about to, and does so again.
	Restarts
	// Interrupted means that the call fails with EINTR, as at a signal: epoll_wait, semtimedop, sigtimedwait and some others
	// do not restart.
	Interrupted
)
