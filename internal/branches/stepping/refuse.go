package stepping

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/tracing"
)

// Reasons why a process or thread cannot be stepped.
var (
	errForeign  = errors.New("runs 32-bit code, which fulgur cannot step")
	errTrapping = errors.New("steps itself: its trap flag is set")
	errIgnoring = errors.New("ignores SIGTRAP, and stepping would end that")
	errKernel   = errors.New("is a kernel thread")
	errSelf     = errors.New("is fulgur itself")
	errInit     = errors.New("is the init process, which fulgur never steps: if the stepper were killed, the system would go down")
)

// someBursts is how long a process may be traced by another process before it is refused.
const someBursts = 100 * time.Millisecond

// RefusalError reports why a process or one of its threads is not stepped.
type RefusalError struct {
	// PID is the process, and TID the thread, or 0 for all threads.
	PID, TID int
	// Reason is the cause and the remedy.
	Reason string
}

// Error implements error.
func (r RefusalError) Error() string {
	if r.TID == 0 {
		return fmt.Sprintf("cannot step process %d: %s", r.PID, r.Reason)
	}
	return fmt.Sprintf("cannot step thread %d of process %d: %s", r.TID, r.PID, r.Reason)
}

// InitPID is the init process of the machine or container, which cannot do without it:
// it is never stepped.
const InitPID = 1

// admit checks whether process pid can be stepped. It waits up to limit while the
// process is traced.
func admit(pid int, limit time.Duration) error {
	if pid == os.Getpid() || pid == os.Getppid() {
		return errSelf
	}
	if pid == InitPID {
		return errInit
	}
	status, err := procfs.Process(pid).Status()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return tracing.ErrGone
	}
	if err != nil {
		return err
	}
	if status.TGID != pid {
		return fmt.Errorf("is a thread of process %d: give the process", status.TGID)
	}
	// Not all kernels report this in status.
	if stat, err := procfs.Process(pid).Stat(); err == nil && stat.KernelThread {
		return errKernel
	}
	// A debugger stays attached, another stepper does not.
	const pause = 10 * time.Millisecond
	for ; tracing.Traced(status) != nil; limit -= pause {
		if limit <= 0 {
			return tracing.Traced(status)
		}
		sleep(pause)
		if status, err = procfs.Process(pid).Status(); err != nil {
			return tracing.ErrGone
		}
	}
	for range 3 {
		err = traceable(pid)
		if !errors.Is(err, tracing.ErrGone) {
			break
		}
		// The first thread has ended. The others are checked one by one. If there are
		// none, one of them may just have executed a program.
		if tids, _ := procfs.Threads(pid); len(tids) > 1 {
			return nil
		}
	}
	return err
}

// traceable checks whether we may trace thread tid.
func traceable(tid int) error { return permission(tracing.Allowed(tid)) }

// seizeError explains why attaching to thread tid failed. It is tracing.ErrGone if the thread has
// exited.
func seizeError(tid int, err error) error {
	status, statusErr := procfs.Process(tid).Status()
	if statusErr != nil || errors.Is(err, unix.ESRCH) {
		return tracing.ErrGone
	}
	if err := tracing.Traced(status); err != nil {
		return err
	}
	if err := traceable(tid); err != nil {
		return err
	}
	// The kernel returns EPERM for a thread that is about to end. Its ID may have been
	// reused by now.
	return tracing.ErrGone
}

// permission explains a permission error of the kernel.
func permission(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	remedy := "run fulgur as root: for other users it steps only their own processes, and no set-user-ID programs, whatever capabilities its file has"
	switch scope := tracing.Scope(); scope {
	case 1, 2:
		remedy += fmt.Sprintf("; and none while kernel.yama.ptrace_scope is %d", scope)
	case 3:
		remedy = "kernel.yama.ptrace_scope is 3, which forbids ptrace until the next boot"
	}
	return fmt.Errorf("%w: %s (a container also needs a seccomp profile that allows ptrace; fulgur doctor shows the obstacles)", err, remedy)
}
