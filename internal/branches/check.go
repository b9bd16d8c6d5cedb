package branches

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/child"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
)

// DefaultCheck is the default of [Options.Check].
const DefaultCheck = 2 * time.Minute

// maxRuns limits the runs of each program that are compared.
const maxRuns = 15

// minRuns is the lowest number of runs with an interval; see [signRank].
const minRuns = 6

// checker runs a command with the original and the optimized program in turn.
type checker struct {
	argv                []string
	original, optimized string        // paths of the programs
	code                int           // the exit code of a correct run
	atMost              time.Duration // time for all runs
	stdin               func() (*os.File, error)
	note                func(string) // for the user
}

// runError is a run that shows that the programs cannot be compared.
type runError struct{ why string }

func (e runError) Error() string { return e.why }

// run compares the programs. ctx ends it early.
func (c *checker) run(ctx context.Context) comparison {
	begin := time.Now()
	limited, cancel := context.WithTimeout(ctx, c.atMost)
	defer cancel()
	var original, optimized []time.Duration
	// The first pair is not counted: it reads files, and shows how long a run takes.
	pair := func() error {
		before, err := c.once(limited, c.original, "the original")
		if err != nil {
			return err
		}
		after, err := c.once(limited, c.optimized, "the optimized program")
		if err == nil {
			original, optimized = append(original, before), append(optimized, after)
		}
		return err
	}
	err := pair()
	took := time.Since(begin)
	runs := min(maxRuns, int((c.atMost-took)/max(took, 1)))
	switch needed := (minRuns + 2) * took; {
	case err == nil && runs < minRuns:
		return uncompared("%d runs of each program would take about %s: allow that with %s", minRuns, roughly(needed.Seconds()), usage.Check)
	case err == nil && time.Duration(runs)*took >= time.Second:
		c.note(fmt.Sprintf("comparing the optimized program with the original: %d runs of each, about %s (Ctrl-C ends this; %s 0 leaves it out)", runs, roughly((time.Duration(runs) * took).Seconds()), usage.Check))
	}
	original, optimized = nil, nil
	for err == nil && len(optimized) < runs {
		err = pair()
	}
	var refused runError
	switch {
	case ctx.Err() != nil:
		return uncompared("interrupted")
	case errors.As(err, &refused):
		return uncompared("%s", refused.why)
	case limited.Err() != nil && len(optimized) < minRuns:
		return uncompared("%s were too short for %d runs of each program: allow more with %s", roughly(c.atMost.Seconds()), minRuns, usage.Check)
	case limited.Err() == nil && err != nil:
		return uncompared("%s", plain.Error(err))
	}
	return compare(original, optimized)
}

// once runs the command with the program at path, and returns its user CPU time, with the
// processes that it waited for.
func (c *checker) once(ctx context.Context, path, name string) (time.Duration, error) {
	stdin, err := c.stdin()
	if err != nil {
		return 0, err
	}
	defer stdin.Close()
	cmd := &exec.Cmd{Path: path, Args: c.argv, Stdin: stdin, SysProcAttr: &unix.SysProcAttr{Setpgid: true}}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err := child.Start(cmd); err != nil {
		return 0, err
	}
	pid := cmd.Process.Pid
	restored := memlock.Restore(pid)
	exited := make(chan error, 1)
	go func() {
		// The process stays a zombie, so that its ID is not used for others.
		exited <- awaitExit(pid)
	}()
	select {
	case err = <-exited:
	case <-ctx.Done():
		err = errors.Join(ctx.Err(), unix.Kill(-pid, unix.SIGKILL), <-exited)
	}
	// Processes that it left behind would disturb the next run.
	if killErr := unix.Kill(-pid, unix.SIGKILL); !errors.Is(killErr, unix.ESRCH) {
		err = errors.Join(err, killErr)
	}
	var exit *exec.ExitError
	if waitErr := cmd.Wait(); !errors.As(waitErr, &exit) {
		err = errors.Join(err, waitErr)
	}
	if err := errors.Join(err, restored); err != nil {
		return 0, err
	}
	if code := exitCode(cmd.ProcessState); code != c.code {
		return 0, runError{fmt.Sprintf("%s exits with code %d when run again, not with %d as before", name, code, c.code)}
	}
	return cmd.ProcessState.UserTime(), nil
}

// awaitExit waits until a child has exited, and does not reap it.
func awaitExit(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("waitid", err)
		}
	}
}

// exitCode returns the exit code as [target.Launched.Wait] does.
func exitCode(s *os.ProcessState) int {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return s.ExitCode()
}

// again returns a function that opens standard input as it is now, for each run: a file at
// its current offset, or /dev/null instead of a terminal.
func again(stdin *os.File) func() (*os.File, error) {
	fail := func(err error) func() (*os.File, error) { return func() (*os.File, error) { return nil, err } }
	info, err := stdin.Stat()
	switch {
	case err != nil:
		return fail(err)
	case info.Mode()&os.ModeCharDevice != 0:
		return func() (*os.File, error) { return os.Open(os.DevNull) }
	case !info.Mode().IsRegular():
		return fail(runError{"standard input can be read only once: use a file, or </dev/null"})
	}
	offset, err := stdin.Seek(0, io.SeekCurrent)
	if err != nil {
		return fail(err)
	}
	return func() (*os.File, error) {
		f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", stdin.Fd()))
		if err != nil {
			return nil, fmt.Errorf("open standard input again: %w", err)
		}
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
}

// check compares the optimized program with the original, and adds the result to the
// report. ctx ends when the user interrupts.
func (j *job) check(ctx context.Context, bs *binaries, launched *target.Launched, report *report) {
	c := j.comparison(ctx, bs, launched)
	r := report.of(bs.only)
	r.Comparison = &c
	if c.Verdict == slower {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the optimized program is slower than the original: measure longer, or with work that is more typical, and do not use %s", plain.Terminal(r.Optimized)))
	}
}

func (j *job) comparison(ctx context.Context, bs *binaries, launched *target.Launched) comparison {
	if launched == nil {
		return uncompared("the work of a running process cannot be repeated; run both programs under the same load, and compare the CPU time per request")
	}
	if ctx.Err() != nil {
		return uncompared("interrupted")
	}
	select {
	case <-launched.Done():
	default:
		return uncompared("the command had not exited at the end of the measurement")
	}
	code, err := launched.Wait()
	switch {
	case err != nil:
		return uncompared("%s", plain.Error(err))
	case !j.runsItself(bs):
		return uncompared("the command does not start %s itself; run it with both programs, and compare the CPU time", plain.Terminal(bs.only.Name))
	}
	c := checker{
		argv: j.options.Command, original: bs.path(), optimized: j.optimizer.output, code: code,
		atMost: j.options.Check, stdin: j.stdin, note: func(string) {},
	}
	if !j.options.Quiet {
		c.note = func(text string) { fmt.Fprintf(j.options.Stderr, "fulgur: %s\n", text) }
	}
	return c.run(ctx)
}

// runsItself reports whether the command is the profiled program.
func (j *job) runsItself(bs *binaries) bool {
	command, err := exec.LookPath(j.options.Command[0])
	if err != nil {
		return false
	}
	info, err := os.Stat(command)
	return err == nil && bs.isChosen(info)
}
