package loop

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fulgur/internal/capture/target"
)

// fake is a measurement without a kernel side. It records the loop's calls.
type fake struct {
	enabled, followed int
	polls             int
	// onEnable and onPoll are called there, if they are not nil.
	onEnable, onPoll func() error
	targets          []int
	fds              []int
}

func (f *fake) Enable() error {
	f.enabled++
	return call(f.onEnable)
}

func (f *fake) Poll() (busy bool, err error) {
	f.polls++
	return false, call(f.onPoll)
}

func call(fn func() error) error {
	if fn == nil {
		return nil
	}
	return fn()
}

func (f *fake) PollFDs() []int          { return f.fds }
func (*fake) UrgentFDs() []int          { return nil }
func (f *fake) Targets() ([]int, error) { return f.targets, nil }
func (*fake) Progress() (string, error) { return "so far", nil }
func (f *fake) FollowCPUs(cpus []int) error {
	if len(cpus) > 0 {
		f.followed++
	}
	return nil
}

// newLoop returns a loop of a target that never ends by itself.
func newLoop() *Loop { return &Loop{Target: target.Target{Scope: target.System}, Rest: PollAtMost} }

// measure runs a loop. One that does not end fails the test.
func measure(t *testing.T, ctx context.Context, l *Loop, f *fake, launched *target.Launched) error { //nolint:revive // t is first in tests
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- l.Measure(ctx, f, new(ProgressLine), launched) }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the measurement does not end")
		return nil
	}
}

// A measurement ends at its limit, and not before.
func TestLimit(t *testing.T) {
	l, f := newLoop(), new(fake)
	l.Limit = 250 * time.Millisecond
	begin := time.Now()
	if err := measure(t, t.Context(), l, f, nil); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); l.Duration < l.Limit || l.Duration > took || l.Start.Before(begin) {
		t.Errorf("sampled for %s from %s on, within %s; want %s", l.Duration, l.Start.Sub(begin), took, l.Limit)
	}
	if f.enabled != 1 || f.polls == 0 || l.Interrupted || l.Missed {
		t.Errorf("enabled %d times, %d polls, interrupted: %v, missed: %v", f.enabled, f.polls, l.Interrupted, l.Missed)
	}
}

// The user ends a measurement at once, and that is known afterwards.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, f := newLoop(), &fake{onPoll: func() error {
		cancel()
		return nil
	}}
	if err := measure(t, ctx, l, f, nil); err != nil {
		t.Fatal(err)
	}
	if !l.Interrupted || l.Missed || f.polls != 1 {
		t.Errorf("interrupted: %v, missed: %v, %d polls", l.Interrupted, l.Missed, f.polls)
	}
}

// Errors end a measurement: errors of the start before the first poll.
func TestErrors(t *testing.T) {
	failure := errors.New("no")
	fail := func() error { return failure }
	f := &fake{onEnable: fail}
	if err := measure(t, t.Context(), newLoop(), f, nil); !errors.Is(err, failure) || f.polls != 0 {
		t.Errorf("Enable: error %v, %d polls", err, f.polls)
	}
	f = &fake{onPoll: fail}
	if err := measure(t, t.Context(), newLoop(), f, nil); !errors.Is(err, failure) || f.polls != 1 {
		t.Errorf("Poll: error %v, %d polls", err, f.polls)
	}
}

// A measurement that has enough ends, before its limit.
func TestEnough(t *testing.T) {
	l, f := newLoop(), new(fake)
	l.Limit = time.Hour
	l.Enough = func() bool { return f.polls == 3 }
	if err := measure(t, t.Context(), l, f, nil); err != nil {
		t.Fatal(err)
	}
	if f.polls != 3 || l.Duration >= l.Limit {
		t.Errorf("%d polls, %s", f.polls, l.Duration)
	}
}

// CPUs that come and go are followed while it is measured.
func TestFollowsCPUs(t *testing.T) {
	l, f := newLoop(), new(fake)
	l.Enough = func() bool { return f.followed > 0 }
	if err := measure(t, t.Context(), l, f, nil); err != nil {
		t.Fatal(err)
	}
	if l.Duration < followEvery {
		t.Errorf("after %s", l.Duration)
	}
}

// A poll that is due is not waited with until the usual one, nor until there is
// something to poll.
func TestDue(t *testing.T) {
	l, f := newLoop(), new(fake)
	l.Rest = 0
	l.Due = func() time.Time { return time.Now().Add(pollEvery / 20) }
	last, soon := time.Now(), false
	f.onPoll = func() error {
		soon = soon || time.Since(last) < pollEvery
		last = time.Now()
		return nil
	}
	// Any of them may be late, as the machine may be busy.
	l.Enough = func() bool { return soon || f.polls == 100 }
	if err := measure(t, t.Context(), l, f, nil); err != nil {
		t.Fatal(err)
	}
	if !soon {
		t.Error("each poll was made at the usual time")
	}
}

// process starts a program that waits for ever.
func process(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// end ends it.
func end(cmd *exec.Cmd) error {
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	_ = cmd.Wait() // was killed
	return nil
}

// A measurement of processes ends with the last of them, but for children that are
// measured too.
func TestTargetEnds(t *testing.T) {
	for name, scope := range map[string]target.Scope{"processes": target.Processes, "threads": target.Threads} {
		t.Run(name, func(t *testing.T) {
			first, last := process(t), process(t)
			l, f := newLoop(), new(fake)
			l.Target = target.Target{Scope: scope, PIDs: []int{first.Process.Pid, last.Process.Pid}}
			if scope == target.Threads {
				l.Target.PIDs, l.Target.TIDs = nil, l.Target.PIDs
			}
			var ended []int
			f.onPoll = func() error {
				switch f.polls {
				case 1:
					ended = append(ended, 1)
					return end(first)
				case 3:
					ended = append(ended, 2)
					return end(last)
				}
				return nil
			}
			if err := measure(t, t.Context(), l, f, nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ended, []int{1, 2}) || l.Interrupted || l.Missed {
				t.Errorf("ended when %v had, interrupted: %v, missed: %v", ended, l.Interrupted, l.Missed)
			}
		})
	}
	t.Run("children outlive it", func(t *testing.T) {
		parent, child := process(t), process(t)
		l, f := newLoop(), &fake{targets: []int{child.Process.Pid}}
		l.Target = target.Target{Scope: target.Processes, PIDs: []int{parent.Process.Pid}, Children: true}
		ended := 0
		f.onPoll = func() error {
			switch f.polls {
			case 1:
				return end(parent)
			case 5:
				ended++
				return end(child)
			}
			return nil
		}
		if err := measure(t, t.Context(), l, f, nil); err != nil {
			t.Fatal(err)
		}
		if ended != 1 {
			t.Error("ended while a child ran")
		}
	})
}

// A target that is gone before the delay is over is missed: that is no time to wait for.
func TestMissed(t *testing.T) {
	cmd := process(t)
	l, f := newLoop(), new(fake)
	l.Target = target.Target{Scope: target.Processes, PIDs: []int{cmd.Process.Pid}}
	l.Delay = time.Hour
	if err := end(cmd); err != nil {
		t.Fatal(err)
	}
	if err := measure(t, t.Context(), l, f, nil); err != nil {
		t.Fatal(err)
	}
	if !l.Missed {
		t.Error("it is not known that the target was missed")
	}
}

// The delay passes before sampling begins, and ends with the run.
func TestDelay(t *testing.T) {
	l, begin := newLoop(), time.Now()
	l.Delay, l.Limit = 150*time.Millisecond, time.Millisecond
	f := &fake{onEnable: func() error {
		if waited := time.Since(begin); waited < l.Delay {
			t.Errorf("sampling begins after %s", waited)
		}
		return nil
	}}
	if err := measure(t, t.Context(), l, f, nil); err != nil {
		t.Fatal(err)
	}
	if l.Missed {
		t.Error("a target that never ends was missed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Delay = time.Hour
	if err := measure(t, ctx, l, new(fake), nil); err != nil || !l.Interrupted {
		t.Errorf("error %v, interrupted: %v", err, l.Interrupted)
	}
}

// launch starts a shell command that is held before its first instruction.
func launch(t *testing.T, script string, args ...string) *target.Launched {
	t.Helper()
	launched, err := target.Start(append([]string{"sh", "-c", script, "sh"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = launched.Signal(os.Kill)
		_ = launched.Close()
	})
	return launched
}

// appears reports whether a file comes to be.
func appears(path string) bool {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// A command runs from when sampling began, so that its first instruction is sampled, or
// if it is to be let go first, before that; and the measurement ends with it.
func TestCommand(t *testing.T) {
	for name, first := range map[string]bool{"sampled from its first instruction": false, "let go first": true} {
		t.Run(name, func(t *testing.T) {
			runs := filepath.Join(t.TempDir(), "runs")
			launched := launch(t, `: > "$1"`, runs)
			l := newLoop()
			l.ReleaseFirst = first
			f := &fake{onEnable: func() error {
				if first {
					if !appears(runs) {
						t.Error("it is held when sampling begins")
					}
					return nil
				}
				time.Sleep(50 * time.Millisecond)
				if _, err := os.Stat(runs); err == nil {
					t.Error("it runs before sampling begins")
				}
				return nil
			}}
			if err := measure(t, t.Context(), l, f, launched); err != nil {
				t.Fatal(err)
			}
			if code, err := launched.Wait(); code != 0 || err != nil || !appears(runs) {
				t.Errorf("exit code %d, %v", code, err)
			}
		})
	}
}

// A command ends with the measurement only if the user interrupts.
func TestEndCommand(t *testing.T) {
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	launched := launch(t, "while :; do sleep 0.01; done")
	if err := launched.Release(); err != nil {
		t.Fatal(err)
	}
	if err := EndCommand(t.Context(), launched); err != nil {
		t.Fatal(err)
	}
	select {
	case <-launched.Done():
		t.Fatal("a command that outlives the measurement was ended")
	case <-time.After(50 * time.Millisecond):
	}
	if err := EndCommand(interrupted, launched); err != nil {
		t.Fatal(err)
	}
	if code, err := launched.Wait(); code != 128+15 || err != nil {
		t.Errorf("exit code %d, %v, want that of SIGTERM", code, err)
	}
	if err := errors.Join(EndCommand(interrupted, launched), EndCommand(interrupted, nil)); err != nil {
		t.Errorf("of one that has ended: %v", err)
	}
}

// The exit code is the command's, unless the measurement failed.
func TestAwait(t *testing.T) {
	failure := errors.New("measuring failed")
	for name, test := range map[string]struct {
		script string
		err    error
		code   int
	}{
		"as the command has it": {"exit 7", nil, 7},
		"killed":                {"kill -KILL $$", nil, 128 + 9},
		"failed":                {"exit 7", failure, 1},
	} {
		t.Run(name, func(t *testing.T) {
			launched := launch(t, test.script)
			if err := launched.Release(); err != nil {
				t.Fatal(err)
			}
			<-launched.Done()
			code, err := Await(t.Context(), launched, test.err, io.Discard, true)
			if code != test.code || !errors.Is(err, test.err) {
				t.Errorf("exit code %d, %v, want %d, %v", code, err, test.code, test.err)
			}
		})
	}
}

// A command that was never let go is ended.
func TestAwaitHeld(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	failure := errors.New("nothing can be measured")
	code, err := Await(t.Context(), launch(t, `: > "$1"`, runs), failure, io.Discard, true)
	if code != 1 || !errors.Is(err, failure) {
		t.Errorf("exit code %d, %v", code, err)
	}
	if _, err := os.Stat(runs); err == nil {
		t.Error("it ran")
	}
}

// A command that is slow to exit causes a message with the user's options, and is
// asked to exit.
func TestAwaitLong(t *testing.T) {
	for name, test := range map[string]struct {
		quiet bool
		err   error
		ended bool // by the user, before
		want  []string
	}{
		"told":                  {want: []string{"waiting for the command (pid ", "(Ctrl-C asks it to exit)"}},
		"quiet":                 {quiet: true},
		"quiet, with an error":  {quiet: true, err: errors.New("no\x1broom"), want: []string{`fulgur: no\x1broom`, "waiting for the command"}},
		"the user has asked it": {ended: true, want: []string{"(asked to exit; Ctrl-C leaves it running)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ready, leave := filepath.Join(dir, "ready"), filepath.Join(dir, "leave")
			launched := launch(t, `trap 'asked=1' TERM; : > "$1"; until [ -e "$2" ] && [ "$asked" ]; do sleep 0.01; done; exit 3`, ready, leave)
			if err := launched.Release(); err != nil {
				t.Fatal(err)
			}
			if !appears(ready) {
				t.Fatal("it does not run")
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.ended {
				cancel()
			}
			var out bytes.Buffer
			go func() {
				time.Sleep(3 * QuietWait)
				cancel()
				_ = os.WriteFile(leave, nil, 0o644)
			}()
			code, err := Await(ctx, launched, test.err, &out, test.quiet)
			if test.err != nil {
				if code != 1 || !errors.Is(err, test.err) {
					t.Errorf("exit code %d, %v", code, err)
				}
			} else if code != 3 || err != nil {
				t.Errorf("exit code %d, %v, want that of who was asked to end", code, err)
			}
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in %q", want, out.String())
				}
			}
			if len(test.want) == 0 && out.Len() > 0 {
				t.Errorf("it says %q", out.String())
			}
		})
	}
}
