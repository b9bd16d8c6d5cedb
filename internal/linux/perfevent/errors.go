package perfevent

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrLockedMemory means that a ring would exceed the user's limit of locked memory.
var ErrLockedMemory = errors.New("more memory than may be locked: raise sysctl kernel.perf_event_mlock_kb, or ulimit -l, or run with CAP_IPC_LOCK")

// OpenError reports which event could not be opened, and the remedy. It wraps the system
// call's errno.
type OpenError struct {
	Attr     Attr
	PID, CPU int
	Err      error
}

// Unwrap returns the errno.
func (e *OpenError) Unwrap() error { return e.Err }

// Error describes the event and the remedy.
func (e *OpenError) Error() string {
	msg := fmt.Sprintf("open perf event (type %d, config %#x) on %s: %v", e.Attr.Type, e.Attr.Config, e.where(), e.Err)
	if hint := e.hint(); hint != "" {
		msg += ": " + hint
	}
	return msg
}

// where returns the tasks and CPUs of the event.
func (e *OpenError) where() string {
	switch {
	case e.PID < 0:
		return fmt.Sprintf("CPU %d", e.CPU)
	case e.CPU < 0:
		return fmt.Sprintf("thread %d", e.PID)
	default:
		return fmt.Sprintf("thread %d, CPU %d", e.PID, e.CPU)
	}
}

// hint explains the errno, after perf_event_open(2).
func (e *OpenError) hint() string {
	var errno syscall.Errno
	errors.As(e.Err, &errno)
	switch errno {
	case unix.EACCES, unix.EPERM:
		return "it needs CAP_PERFMON; fulgur doctor shows the obstacles"
	case unix.EMFILE:
		return "too many open files: raise the limit with ulimit -n"
	case unix.ENFILE:
		return "too many open files on this machine: raise sysctl fs.file-max"
	case unix.ENOENT, unix.EOPNOTSUPP:
		if e.Attr.BranchSampleType != 0 {
			return "this machine has no such event, or records no branches for it"
		}
		return "this machine has no such event; virtual machines often have software events only: try cpu-clock"
	case unix.ENODEV:
		return "the CPU is offline or has no such event"
	case unix.ENOSPC:
		return "no hardware counter can hold this event"
	case unix.EBUSY:
		return "another user of perf events holds the counter exclusively"
	case unix.ESRCH:
		return "no such process: it has exited, or never existed"
	case unix.EINVAL:
		if e.Attr.Frequency != 0 {
			if limit, err := MaxSampleRate(); err == nil && e.Attr.Frequency > limit {
				return fmt.Sprintf("a frequency of %d Hz is above sysctl kernel.perf_event_max_sample_rate, %d", e.Attr.Frequency, limit)
			}
		}
		return "the kernel refuses this combination of attributes; it may be too old for them"
	case unix.ENOSYS:
		return "this kernel was built without perf events"
	}
	return ""
}
