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

	"fulgur/internal/capture/target"
)

// Reasons why a process or thread cannot be stepped.
var (
	errForeign  = errors.New("runs 32-bit code, which is not understood here")
	errTrapping = errors.New("steps itself: its trap flag is set")
	errIgnoring = errors.New("ignores SIGTRAP, which it would not after a step")
	errKernel   = errors.New("is a kernel thread")
	errSelf     = errors.New("is fulgur itself")
	errInit     = errors.New("is the init process, which is never stepped: if the stepper were killed, the system would go down with it")
	errGone     = errors.New("there is no such process")
	// errTraced may be temporary, such as another stepper's burst.
	errTraced = errors.New("is traced already")
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

// initPID is the init process of the machine or container, which cannot do without it.
const initPID = 1

// admit checks whether process pid can be stepped. It waits up to patience while the
// process is traced.
func admit(pid int, patience time.Duration) error {
	if pid == os.Getpid() || pid == os.Getppid() {
		return errSelf
	}
	if pid == initPID {
		return errInit
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
	case target.IsKernelThread(pid): // not all kernels report this in status
		return errKernel
	}
	// A debugger stays attached, another stepper does not.
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
	for range 3 {
		err = traceable(pid)
		if !errors.Is(err, errGone) {
			break
		}
		// The first thread has ended. The others are checked one by one. If there are
		// none, one of them may just have executed a program.
		if tids, _ := threads(pid); len(tids) > 1 {
			return nil
		}
	}
	return err
}

// traceable checks whether we may trace thread tid. The kernel applies the same check to
// reading its memory.
func traceable(tid int) error {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", tid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return errGone
	}
	if err != nil {
		return permission(err)
	}
	return mem.Close()
}

// seizeError explains why attaching to thread tid failed. It is errGone if the thread has
// exited.
func seizeError(tid int, err error) error {
	status, statusErr := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if statusErr != nil || errors.Is(err, unix.ESRCH) {
		return errGone
	}
	if err := traced(status); err != nil {
		return err
	}
	if err := traceable(tid); err != nil {
		return err
	}
	// The kernel returns EPERM for a thread that is about to end. Its ID may have been
	// reused by now.
	return errGone
}

// traced reports which process traces the task with the given /proc/TID/status.
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

// permission explains a permission error of the kernel.
func permission(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	remedy := "run fulgur as root: other users have only their own processes stepped, and no set-user-ID programs, whatever the capabilities of fulgur's file"
	if scope, e := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); e == nil && len(scope) > 0 {
		switch scope[0] {
		case '1', '2':
			remedy += "; and not even those where kernel.yama.ptrace_scope is " + string(scope[:1]) + ", as here"
		case '3':
			remedy = "kernel.yama.ptrace_scope is 3: nobody may trace here until the next boot"
		}
	}
	return fmt.Errorf("%w: %s (in a container also a seccomp profile that allows ptrace; fulgur doctor tells what is in the way)", err, remedy)
}

// signals holds the signal sets of /proc/TID/status: those ignored by the program, those
// blocked by the thread (except those it waits for), and those pending for the thread and
// for the process.
type signals struct{ ignored, blocked, own, shared uint64 }

// readSignals returns the signal sets of thread tid of process pid.
func readSignals(pid, tid int) (signals, error) {
	status, err := readStatus(pid, tid)
	if err != nil {
		return signals{}, err
	}
	set := func(name string) uint64 {
		n, e := strconv.ParseUint(statusField(status, name), 16, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("signals of thread %d: %s: %w", tid, name, e)
		}
		return n
	}
	s := signals{ignored: set("SigIgn"), blocked: set("SigBlk"), own: set("SigPnd"), shared: set("ShdPnd")}
	return s, err
}

// readStatus returns /proc/PID/task/TID/status.
func readStatus(pid, tid int) ([]byte, error) {
	return os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
}

// threads returns the thread IDs of process pid.
func threads(pid int) ([]int, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	var tids []int
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, err
}

// statusNumber returns the number in the named line of /proc/TID/status, or 0 if there is
// none.
func statusNumber(status []byte, name string) int {
	n, err := strconv.Atoi(statusField(status, name))
	if err != nil {
		return 0
	}
	return n
}

// statusField returns the named line of /proc/TID/status, or "" if there is none.
func statusField(status []byte, name string) string {
	for line := range bytes.Lines(status) {
		if v, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return string(bytes.TrimSpace(v))
		}
	}
	return ""
}
