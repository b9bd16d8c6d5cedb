package tracing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
)

// Errors of attaching to a thread.
var (
	// ErrGone means that there is no such process or thread any more.
	ErrGone = errors.New("there is no such process")
	// ErrTraced means that the thread has a tracer, perhaps only for a moment.
	ErrTraced = errors.New("is already being traced")
)

// Allowed returns nil if this process may trace a thread. The kernel applies the same check to reading its memory. The error
// is [ErrGone], or the kernel's.
func Allowed(tid int) error {
	mem, err := os.Open(procfs.Path(tid, "mem"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	if err != nil {
		return err
	}
	return mem.Close()
}

// Traced returns an [ErrTraced] with the tracer of the task with the given status, nil if it has none.
func Traced(status procfs.Status) error {
	tracer := status.TracerPID
	if tracer == 0 {
		return nil
	}
	name, err := procfs.Process(tracer).Comm()
	if err != nil {
		name = "?"
	}
	return fmt.Errorf("%w by process %d (%s): end that tracer first", ErrTraced, tracer, name)
}

// Permitted reports whether the system calls of this package are permitted, whatever the target: a seccomp filter may
// refuse them.
func Permitted() error {
	const nobody = 1 << 30 // above all process IDs
	if err := Seize(nobody); !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("ptrace", err)
	}
	return nil
}

// Scope returns Yama's sysctl kernel.yama.ptrace_scope, 0 if the kernel has none: 0 permits tracing a user's own
// processes, 1 only descendants, and 2 and 3 none.
func Scope() int {
	text, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil || len(text) == 0 || text[0] < '0' || text[0] > '9' {
		return 0
	}
	return int(text[0] - '0')
}
