package target

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/memlock"
)

// Launched is a command launched by [Start]. It is stopped in its new image before
// its first instruction, until [Launched.Release].
//
// It is stopped by ptrace. The kernel accepts ptrace requests only from the thread
// that started the tracee, so one goroutine, locked to its thread, starts and
// releases it.
type Launched struct {
	process *os.Process // has a pidfd, so a signal cannot reach a reused PID

	terminate sync.Once // sends SIGTERM

	release  chan struct{} // closed to request the release
	once     sync.Once     // closes release
	released chan struct{} // closed when the tracer has set detached
	detached error

	done   chan struct{} // closed when the process has ended
	ended  bool          // whether status is valid
	status unix.WaitStatus
	err    error // why status is unknown
}

// Launch launches the command, as [Start] does, and makes it the target t. It
// returns nil if argv is empty.
func Launch(argv []string, t *Target) (*Launched, error) {
	if len(argv) == 0 {
		return nil, nil
	}
	launched, err := Start(argv)
	if err != nil {
		return nil, err
	}
	t.Scope = Command
	t.PIDs = []int{launched.PID()}
	t.Children = true
	return launched, nil
}

// Start launches argv and returns once it is stopped before its first instruction.
// The first element of argv is looked up in PATH if it has no slash. The process
// gets files as its standard input, output and error, or inherits this process's if
// there are none. It stays in our process group, so Ctrl-C on a terminal reaches it,
// too. If we die before it is released, the kernel kills it.
//
// If the command cannot be run, the error is a [*CommandError].
func Start(argv []string, files ...*os.File) (*Launched, error) {
	if len(argv) == 0 {
		return nil, errors.New("start command: no command given")
	}
	path, err := lookPath(argv[0])
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		files = []*os.File{os.Stdin, os.Stdout, os.Stderr}
	}
	c := &Launched{
		release:  make(chan struct{}),
		released: make(chan struct{}),
		done:     make(chan struct{}),
	}
	started := make(chan error)
	go c.trace(path, argv, files, started)
	if err := <-started; err != nil {
		return nil, err
	}
	go c.reap()
	return c, nil
}

// trace is the body of the tracer's goroutine: it starts the process, reports, and
// holds it until the release.
func (c *Launched) trace(path string, argv []string, files []*os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	err := c.exec(path, argv, files)
	if err == nil {
		err = c.awaitExec()
	}
	started <- err
	if err != nil {
		return
	}
	<-c.release
	err = unix.PtraceDetach(c.PID())
	if err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: killed meanwhile
		c.detached = fmt.Errorf("let %s run: %w", argv[0], err)
	}
	close(c.released)
}

// exec starts the process as a tracee of this thread. The process stops once it has
// executed path.
func (c *Launched) exec(path string, argv []string, files []*os.File) error {
	attr := &os.ProcAttr{Files: files, Sys: &syscall.SysProcAttr{Ptrace: true}}
	// The kernel records whether a tracer has this capability when tracing
	// begins. Only then may the command gain privileges when executed, as it
	// would without a tracer.
	start := func(path string, argv []string) (*os.Process, error) {
		return capability.With(capability.SetOf(capability.SysPtrace), func() (*os.Process, error) {
			return os.StartProcess(path, argv, attr)
		})
	}
	var err error
	c.process, err = start(path, argv)
	if errors.Is(err, syscall.ENOEXEC) {
		// A script without "#!" is run by a shell, as by execvp(3).
		const shell = "/bin/sh"
		c.process, err = start(shell, append([]string{shell, path}, argv[1:]...))
	}
	if err != nil {
		return startError(argv[0], err)
	}
	return nil
}

// awaitExec returns when the process has stopped after its execve, or exited before.
// If we die before PTRACE_O_EXITKILL is set, the kernel resumes it: it never stays
// stopped forever.
func (c *Launched) awaitExec() error {
	pid := c.PID()
	for {
		status, err := wait(pid)
		if err != nil {
			return err
		}
		if !status.Stopped() {
			c.status, c.ended = status, true
			return nil
		}
		if stop := status.StopSignal(); stop != unix.SIGTRAP {
			// A signal arrived during the execve, and stopped it first:
			// deliver it.
			err = unix.PtraceCont(pid, int(stop))
		} else if err = unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL); err == nil {
			return memlock.Restore(pid)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: killed, which Wait reports
			_ = c.process.Kill()
			return fmt.Errorf("hold process %d before its first instruction: %w", pid, err)
		}
	}
}

// reap waits for the process to end.
func (c *Launched) reap() {
	if !c.ended {
		if c.err = awaitEnd(c.PID()); c.err == nil {
			c.status, c.err = wait(c.PID())
		}
	}
	close(c.done)
}

// awaitEnd returns when process pid has ended. If another thread of this process traces it, the kernel shows its stops here,
// too. They are left to that thread (WNOWAIT).
func awaitEnd(pid int) error {
	const (
		ended = 3 // CLD_DUMPED, after CLD_EXITED and CLD_KILLED
		pause = time.Millisecond
	)
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for process %d: %w", pid, err)
		case info.Code <= ended:
			return nil
		default:
			time.Sleep(pause)
		}
	}
}

// wait waits for a change of process pid's state.
func wait(pid int) (unix.WaitStatus, error) {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, 0, nil)
		if err == nil {
			return status, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("wait for process %d: %w", pid, err)
		}
	}
}

// PID returns the process's ID.
func (c *Launched) PID() int { return c.process.Pid }

// Release lets the command run. Further calls do nothing. It is not an error if the
// command was killed before; Wait reports that.
func (c *Launched) Release() error {
	c.once.Do(func() { close(c.release) })
	<-c.released
	return c.detached
}

// Done returns a channel that is closed when the command has exited.
func (c *Launched) Done() <-chan struct{} { return c.done }

// Wait waits for the command to exit. It returns the exit code or, as shells do, 128
// plus the number of the signal that killed it. It may be called more than once.
func (c *Launched) Wait() (exitCode int, err error) {
	<-c.done
	if c.err != nil {
		return 0, c.err
	}
	if c.status.Signaled() {
		return 128 + int(c.status.Signal()), nil
	}
	return c.status.ExitStatus(), nil
}

// Signal sends sig to the command. It does nothing if the command has exited.
func (c *Launched) Signal(sig os.Signal) error {
	err := c.process.Signal(sig)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", c.PID(), err)
	}
	return nil
}

// Terminate asks the command to exit with SIGTERM. Further calls do nothing, so that
// a command gets the time for an orderly exit.
func (c *Launched) Terminate() (err error) {
	c.terminate.Do(func() { err = c.Signal(unix.SIGTERM) })
	return err
}

// Close kills a command that was never released, for runs that fail before they
// begin. It leaves a released command running.
func (c *Launched) Close() error {
	var err error
	c.once.Do(func() {
		err = c.Signal(os.Kill)
		close(c.release)
		<-c.done
	})
	return err
}
