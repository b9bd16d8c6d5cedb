package stepping

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/tracing"
)

// The si_codes of the trap of a step. A process cannot send a signal with the first two to another
// process. If the instruction has a uprobe, the kernel sends the trap as if the process itself had
// called kill(2), but to the thread alone.
const (
	trapTrace      = 2 // TRAP_TRACE
	trapBreakpoint = 1 // TRAP_BRKPT: of a step if the processor gave no reason for the trap
	fromUser       = 0 // SI_USER
)

// queue is a queue of pending signals, as in PTRACE_PEEKSIGINFO.
type queue uint32

const (
	ownQueue    queue = 0 // of the thread; holds the trap of a step
	sharedQueue queue = 1 // PTRACE_PEEKSIGINFO_SHARED, of the process
)

// peek reads the pending signals of a stopped thread in the order of their arrival,
// starting at index from, and returns how many it has read.
func (q queue) peek(tid, from int, infos []tracing.Info) (int, error) {
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
func (q queue) trap(tid int) (trap tracing.Info, found bool) {
	var infos [16]tracing.Info
	n, err := q.peek(tid, 0, infos[:])
	if err != nil {
		return tracing.Info{}, false // the thread is dying
	}
	end := n
	if n == len(infos) {
		end = q.length(tid, n)
	}
	for {
		for _, info := range infos[:n] {
			if info.Signo == int32(unix.SIGTRAP) {
				return info, true
			}
		}
		if end <= len(infos) {
			return tracing.Info{}, false // reached the start
		}
		end -= len(infos)
		if n, err = q.peek(tid, end, infos[:]); err != nil {
			return tracing.Info{}, false
		}
	}
}

// length returns the number of pending signals, which is at least minimum.
func (q queue) length(tid, minimum int) int {
	there := func(number int) bool {
		var info [1]tracing.Info
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
