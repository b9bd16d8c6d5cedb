package target

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/memlock"
)

// Launched is a command that [Start] has launched: it stands in its new image,
// before its first instruction, until [Launched.Release].
//
// ptrace holds it. The kernel accepts a tracer's requests only from the thread
// that started the tracee, so one goroutine, locked to its thread, starts it
// and lets it go.
type Launched struct {
	process *os.Process // for its pidfd: a signal never meets a reused pid

	terminate sync.Once // sends SIGTERM

	release  chan struct{} // closed to ask the tracer to let go
	once     sync.Once     // closes release
	released chan struct{} // closed when the tracer has answered in detached
	detached error

	done   chan struct{} // closed when the process has ended
	ended  bool          // status holds
	status unix.WaitStatus
	err    error // why status could not be had
}

// Launch starts the command, if there is one, as [Start] does, and makes it the
// target t. It returns nil if there is none.
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

// Start launches argv, whose first element is looked up in PATH if it has no
// slash, and returns once it stands before its first instruction. The process
// gets files as its standard input, output and error, or those of this process
// if none are given; it belongs to our process group, so Ctrl-C on a terminal
// reaches it too. Should we die before it is released, it is killed.
//
// The error of a command that cannot be run is a [*CommandError].
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

// trace is the tracer's life: start the process, report, hold it until asked
// to let go.
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

// exec starts the process as a tracee of this thread, which stops once it has
// executed path.
func (c *Launched) exec(path string, argv []string, files []*os.File) error {
	attr := &os.ProcAttr{Files: files, Sys: &syscall.SysProcAttr{Ptrace: true}}
	// The kernel notes whether a tracer has this capability when it begins to trace: only
	// then may a command gain privileges by its execution, as it does without a tracer.
	start := func(path string, argv []string) (*os.Process, error) {
		return capability.With(capability.SetOf(capability.SysPtrace), func() (*os.Process, error) {
			return os.StartProcess(path, argv, attr)
		})
	}
	var err error
	c.process, err = start(path, argv)
	if errors.Is(err, syscall.ENOEXEC) {
		// A script without "#!": a shell runs it, as execvp(3) has it.
		const shell = "/bin/sh"
		c.process, err = start(shell, append([]string{shell, path}, argv[1:]...))
	}
	if err != nil {
		return startError(argv[0], err)
	}
	return nil
}

// awaitExec returns when the process has stopped after its execve, or exited
// before. If we die before we have asked for it to be killed with us, the
// kernel lets it go: at no moment could it stay stopped for ever.
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
			// A signal came during the execve, and goes first: hand it on.
			err = unix.PtraceCont(pid, int(stop))
		} else if err = unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL); err == nil {
			return memlock.Restore(pid)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: killed; wait tells
			_ = c.process.Kill()
			return fmt.Errorf("hold process %d before its first instruction: %w", pid, err)
		}
	}
}

// reap waits for the process to end.
func (c *Launched) reap() {
	for !c.ended && c.err == nil {
		c.status, c.err = wait(c.PID())
		c.ended = !c.status.Stopped()
	}
	close(c.done)
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

// Release lets the command run. Further calls do nothing. That it was killed
// before is no error: Wait tells.
func (c *Launched) Release() error {
	c.once.Do(func() { close(c.release) })
	<-c.released
	return c.detached
}

// Done returns a channel that is closed when the command has exited.
func (c *Launched) Done() <-chan struct{} { return c.done }

// Wait waits for the command to exit and returns its exit code, or, as shells
// do, 128 and the number of the signal that killed it. It may be called more
// than once.
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

// Signal sends sig to the command. One that has exited is left in peace.
func (c *Launched) Signal(sig os.Signal) error {
	err := c.process.Signal(sig)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", c.PID(), err)
	}
	return nil
}

// Terminate asks the command to end, with SIGTERM. Further calls do nothing, so
// that a command which takes its time to end in order is not pressed.
func (c *Launched) Terminate() (err error) {
	c.terminate.Do(func() { err = c.Signal(unix.SIGTERM) })
	return err
}

// Close ends a command that was never released, for a run that fails before
// it began; one that was released is left to run.
func (c *Launched) Close() error {
	var err error
	c.once.Do(func() {
		err = c.Signal(os.Kill)
		close(c.release)
		<-c.done
	})
	return err
}
