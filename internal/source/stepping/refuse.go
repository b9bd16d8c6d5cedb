package stepping

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Why a process or a thread cannot be stepped.
var (
	errForeign  = errors.New("runs 32-bit code, which is not understood here")
	errTrapping = errors.New("steps itself: its trap flag is set")
	errIgnoring = errors.New("ignores SIGTRAP, which it would not after a step")
	errKernel   = errors.New("is a kernel thread")
	errSelf     = errors.New("is fulgur itself")
	errGone     = errors.New("there is no such process")
	// errTraced may be over soon, as with another stepper's burst.
	errTraced = errors.New("is traced already")
)

// someBursts is how long a process may be traced by another before it is
// refused.
const someBursts = 100 * time.Millisecond

// RefusalError says why a process, or a thread of it, is not stepped.
type RefusalError struct {
	// PID is the process, TID the thread, 0 for all of them.
	PID, TID int
	// Reason says why, and what can be done.
	Reason string
}

// Error implements error.
func (r RefusalError) Error() string {
	if r.TID == 0 {
		return fmt.Sprintf("cannot step process %d: %s", r.PID, r.Reason)
	}
	return fmt.Sprintf("cannot step thread %d of process %d: %s", r.TID, r.PID, r.Reason)
}

// admit checks whether process pid can be stepped, and has patience while it is
// traced.
func admit(pid int, patience time.Duration) error {
	if pid == os.Getpid() || pid == os.Getppid() {
		return errSelf
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return errGone
	}
	if err != nil {
		return err
	}
	switch {
	case statusNumber(status, "Tgid") != pid:
		return fmt.Errorf("is a thread of process %d, give that", statusNumber(status, "Tgid"))
	case statusNumber(status, "Kthread") == 1:
		return errKernel
	}
	// A debugger stays, another stepper does not.
	const pause = 10 * time.Millisecond
	for ; traced(status) != nil; patience -= pause {
		if patience <= 0 {
			return traced(status)
		}
		sleep(pause)
		if status, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err != nil {
			return errGone
		}
	}
	// The kernel asks the same of a reader of the memory as of a tracer.
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if errors.Is(err, unix.ESRCH) {
		return errGone
	}
	if err != nil {
		return permission(err)
	}
	return mem.Close()
}

// seizeError explains why thread tid could not be attached to. It is errGone
// if the thread has exited.
func seizeError(tid int, err error) error {
	status, statusErr := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if statusErr != nil || errors.Is(err, unix.ESRCH) || bytes.Contains(status, []byte("\nState:\tZ")) || bytes.Contains(status, []byte("\nState:\tX")) {
		return errGone // the kernel says EPERM of one that is about to
	}
	if err := traced(status); err != nil {
		return err
	}
	return permission(err)
}

// traced says who traces the task with the given /proc/TID/status.
func traced(status []byte) error {
	tracer := statusNumber(status, "TracerPid")
	if tracer == 0 {
		return nil
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", tracer))
	if err != nil {
		name = []byte("?")
	}
	return fmt.Errorf("%w by process %d (%s), and only one can: end that first", errTraced, tracer, bytes.TrimSpace(name))
}

// permission explains a refusal of the kernel.
func permission(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	remedy := "needs root or CAP_SYS_PTRACE"
	if scope, e := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); e == nil && len(scope) > 0 {
		switch scope[0] {
		case '1', '2':
			remedy += ", since kernel.yama.ptrace_scope is " + string(scope[:1])
		case '3':
			remedy = "kernel.yama.ptrace_scope is 3: nobody may trace here until the next boot"
		}
	}
	return fmt.Errorf("%w: %s (in a container also a seccomp profile that allows ptrace; fulgur doctor tells what is in the way)", err, remedy)
}

// ignoresTrap reports whether thread tid ignores SIGTRAP. The kernel undoes that
// to tell of a step.
func ignoresTrap(pid, tid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
	if err != nil {
		return false // it has ended
	}
	ignored, err := strconv.ParseUint(statusField(status, "SigIgn"), 16, 64)
	return err == nil && ignored&trapSignal != 0
}

// statusNumber returns the number in a line of /proc/TID/status, 0 if there is
// none.
func statusNumber(status []byte, name string) int {
	n, err := strconv.Atoi(statusField(status, name))
	if err != nil {
		return 0
	}
	return n
}

// statusField returns what a line of /proc/TID/status says, "" if there is
// none.
func statusField(status []byte, name string) string {
	for line := range bytes.Lines(status) {
		if v, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return string(bytes.TrimSpace(v))
		}
	}
	return ""
}
