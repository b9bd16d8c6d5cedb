package uprobe

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Urgently calls f under the real-time policy SCHED_FIFO, so that other threads do not
// interrupt it while it holds the lock of the target's address space. The calling
// goroutine must be locked to its thread. Without the privilege f runs as usual.
func Urgently(f func() error) error {
	const thread = 0 // the calling one
	before, err := unix.SchedGetAttr(thread, 0)
	if err != nil {
		return f()
	}
	realtime := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: 1}
	if unix.SchedSetAttr(thread, &realtime, 0) != nil {
		return f()
	}
	err = f()
	// Only privileged threads can clear the flag. It does no harm.
	before.Flags |= unix.SCHED_FLAG_RESET_ON_FORK
	return errors.Join(err, unix.SchedSetAttr(thread, before, 0))
}
