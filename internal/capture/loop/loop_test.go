package loop

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/testenv"
)

// fake is a measurement without a kernel side. It records the loop's calls.
type fake struct {
	enabled, followed int
	polls             int
	busy              bool
	// onEnable and onPoll are called by Enable and Poll, if they are not nil.
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
	return f.busy, call(f.onPoll)
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

// newLoop returns a loop whose target never ends by itself.
func newLoop() *Loop { return &Loop{Target: target.Target{Scope: target.System}, Rest: PollAtMost} }

// measure runs a loop. The test fails if the loop does not end.
func measure(t *testing.T, ctx context.Context, l *Loop, f *fake, launched *target.Launched) error { //nolint:revive // t is first in tests
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- l.Measure(ctx, f, new(ProgressLine), launched) }()
	return testenv.Receive(t, done, "the loop has not ended")
}

// A measurement ends at its limit, not before.
func TestLimit(t *testing.T) {
	l, f := newLoop(), new(fake)
	l.Limit = 250 * time.Millisecond
	begin := time.Now()
	if err := measure(t, t.Context(), l, f, nil); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); l.Duration < l.Limit || l.Duration > took || l.Start.Before(begin) {
		t.Errorf("measured for %s, from %s after the start, within %s; want %s", l.Duration, l.Start.Sub(begin), took, l.Limit)
	}
	if f.enabled != 1 || f.polls == 0 || l.Interrupted || l.Missed {
		t.Errorf("got %d calls of Enable, %d polls, interrupted: %v, missed: %v; want 1, some, false, false", f.enabled, f.polls, l.Interrupted, l.Missed)
	}
}

// An interrupt by the user ends a measurement at once, and is recorded.
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
		t.Errorf("got interrupted: %v, missed: %v, %d polls; want true, false, 1", l.Interrupted, l.Missed, f.polls)
	}
}

// Errors end a measurement. An error of Enable ends it before the first poll.
func TestErrors(t *testing.T) {
	failure := errors.New("no")
	fail := func() error { return failure }
	f := &fake{onEnable: fail}
	if err := measure(t, t.Context(), newLoop(), f, nil); !errors.Is(err, failure) || f.polls != 0 {
		t.Errorf("Enable: got error %v, %d polls; want %v, 0", err, f.polls, failure)
	}
	f = &fake{onPoll: fail}
	if err := measure(t, t.Context(), newLoop(), f, nil); !errors.Is(err, failure) || f.polls != 1 {
		t.Errorf("Poll: got error %v, %d polls; want %v, 1", err, f.polls, failure)
	}
}

// A measurement ends before its limit once it has enough samples.
func TestEnough(t *testing.T) {
	l, f := newLoop(), new(fake)
	l.Limit = time.Hour
	l.Enough = func() bool { return f.polls == 3 }
	if err := measure(t, t.Context(), l, f, nil); err != nil {
		t.Fatal(err)
	}
	if f.polls != 3 || l.Duration >= l.Limit {
		t.Errorf("got %d polls in %s, want 3 before the limit", f.polls, l.Duration)
	}
}

// Garbage collections of a large heap are rarer during a measurement whose memory the caller limits.
// Afterwards, they are as frequent as usual.
func TestMemoryLimited(t *testing.T) {
	before := debug.SetGCPercent(gcPercentAtEnd + 1)
	defer debug.SetGCPercent(before)
	large := make([]byte, 4*collectAfter)
	defer runtime.KeepAlive(large)
	runtime.GC()
	for limited, want := range map[bool]uint64{false: gcPercent, true: gcPercentLimited} {
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		l := newLoop()
		l.MemoryLimited = limited
		l.Enough = func() bool {
			metrics.Read(sample)
			return true
		}
		if err := measure(t, t.Context(), l, new(fake), nil); err != nil {
			t.Fatal(err)
		}
		if got := sample[0].Value.Uint64(); got != want {
			t.Errorf("limited: %v: a collection starts after growth of %d %%, want %d %%", limited, got, want)
		}
		metrics.Read(sample)
		if got := sample[0].Value.Uint64(); got != gcPercentAtEnd {
			t.Errorf("limited: %v: after the measurement, a collection starts after growth of %d %%, want %d %%", limited, got, gcPercentAtEnd)
		}
	}
}

// While the heap grows during a measurement, the percentage falls to the usual one.
func TestGrowingHeap(t *testing.T) {
	before := debug.SetGCPercent(gcPercentAtEnd)
	defer debug.SetGCPercent(before)
	runtime.GC()
	var large []byte
	defer func() { runtime.KeepAlive(large) }()
	percent := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	l := newLoop()
	l.Limit, l.Every = time.Minute, time.Millisecond
	l.Enough = func() bool {
		if large == nil {
			if got := percent(); got <= gcPercent {
				t.Errorf("a collection of a small heap starts after growth of %d %%, want more than %d %%", got, gcPercent)
			}
			large = make([]byte, 4*collectAfter)
			runtime.GC()
		}
		return percent() == gcPercent
	}
	if err := measure(t, t.Context(), l, new(fake), nil); err != nil {
		t.Fatal(err)
	}
	if l.Duration >= l.Limit {
		t.Errorf("after %s, a collection of a large heap does not start after growth of %d %%", l.Duration, gcPercent)
	}
}

// Some time after the start, memory is returned to the kernel, once.
func TestSettle(t *testing.T) {
	forced := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/cycles/forced:gc-cycles"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before, settled, after := forced(), 0, 0
	l := newLoop()
	l.Limit, l.Every = time.Minute, time.Millisecond
	l.Settle = func() { settled++ }
	l.Enough = func() bool {
		if settled > 0 && forced() > before {
			after++
		}
		return after > 10
	}
	if err := measure(t, t.Context(), l, new(fake), nil); err != nil {
		t.Fatal(err)
	}
	if settled != 1 {
		t.Errorf("Settle was called %d times, want once", settled)
	}
}

// During a measurement, the loop follows CPUs that go online or offline.
func TestFollowsCPUs(t *testing.T) {
	l, f := newLoop(), new(fake)
	l.Enough = func() bool { return f.followed > 0 }
	if err := measure(t, t.Context(), l, f, nil); err != nil {
		t.Fatal(err)
	}
	if l.Duration < followEvery {
		t.Errorf("CPUs followed after %s, want %s", l.Duration, followEvery)
	}
}

// Polls are as rare as they may be.
func TestEvery(t *testing.T) {
	for _, busy := range []bool{false, true} {
		l, f := newLoop(), &fake{busy: busy}
		l.Limit = 4 * pollEvery
		l.Every, l.EveryBusy = time.Hour, PollAtMost
		if busy {
			l.Every, l.EveryBusy = pollEvery, time.Hour
		}
		if err := measure(t, t.Context(), l, f, nil); err != nil {
			t.Fatal(err)
		}
		if f.polls > 3 { // one after the first wait, one at the end, and one in case the clock is early
			t.Errorf("busy: %v: got %d polls", busy, f.polls)
		}
	}
}

func TestPace(t *testing.T) {
	for rate, want := range map[uint64][2]time.Duration{
		0:       {},
		1:       {pollSlowest, pollEvery},
		19:      {pollSlowest, pollEvery},
		49:      {204 * time.Millisecond, 40 * time.Millisecond},
		99:      {101 * time.Millisecond, 20 * time.Millisecond},
		4999:    {pollEvery, PollAtMost},
		1 << 40: {pollEvery, PollAtMost},
	} {
		l := newLoop()
		l.Pace(rate)
		if got := [2]time.Duration{l.Every.Truncate(time.Millisecond), l.EveryBusy.Truncate(time.Millisecond)}; got != want {
			t.Errorf("%d Hz: got %v, want %v", rate, got, want)
		}
	}
}

// A poll that is due happens at once, before the usual time and without a readable ring.
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
	// Any single poll may be late on a busy machine.
	l.Enough = func() bool { return soon || f.polls == 100 }
	if err := measure(t, t.Context(), l, f, nil); err != nil {
		t.Fatal(err)
	}
	if !soon {
		t.Error("all polls were made at the usual time, want one earlier")
	}
}

// process starts a program that sleeps until it is killed.
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

// end kills a process and reaps it.
func end(cmd *exec.Cmd) error {
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	_ = cmd.Wait() // an error, because it was killed
	return nil
}

// A measurement of processes ends when the last of them ends, unless children that are
// measured too still run.
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
				t.Errorf("measurement ended after processes %v (interrupted: %v, missed: %v), want 1 and 2", ended, l.Interrupted, l.Missed)
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
			t.Error("the measurement ended while a child ran")
		}
	})
}

// A target that ends during the delay is missed, and the loop does not wait for the rest
// of the delay.
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
		t.Error("Missed is false, want true")
	}
}

// Sampling begins after the delay. An interrupt ends the delay.
func TestDelay(t *testing.T) {
	l, begin := newLoop(), time.Now()
	l.Delay, l.Limit = 150*time.Millisecond, time.Millisecond
	f := &fake{onEnable: func() error {
		if waited := time.Since(begin); waited < l.Delay {
			t.Errorf("sampling began after %s, want at least the delay", waited)
		}
		return nil
	}}
	if err := measure(t, t.Context(), l, f, nil); err != nil {
		t.Fatal(err)
	}
	if l.Missed {
		t.Error("Missed is true for a target that never ends")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Delay = time.Hour
	if err := measure(t, ctx, l, new(fake), nil); err != nil || !l.Interrupted {
		t.Errorf("got error %v, interrupted: %v; want none, true", err, l.Interrupted)
	}
}

// launch starts a shell command, stopped before its first instruction.
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

// appears waits for a file, and reports whether it was created.
func appears(path string) bool {
	for end := time.Now().Add(testenv.TimeLimit()); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// A command is released when sampling has begun, so that its first instruction is
// sampled, or before that if the options say so. The measurement ends with the command.
func TestCommand(t *testing.T) {
	for name, first := range map[string]bool{"sampled from its first instruction": false, "released first": true} {
		t.Run(name, func(t *testing.T) {
			runs := filepath.Join(t.TempDir(), "runs")
			launched := launch(t, `: > "$1"`, runs)
			l := newLoop()
			l.ReleaseFirst = first
			f := &fake{onEnable: func() error {
				if first {
					if !appears(runs) {
						t.Error("the command was not released before sampling began")
					}
					return nil
				}
				time.Sleep(50 * time.Millisecond)
				if _, err := os.Stat(runs); err == nil {
					t.Error("the command ran before sampling began")
				}
				return nil
			}}
			if err := measure(t, t.Context(), l, f, launched); err != nil {
				t.Fatal(err)
			}
			if code, err := launched.Wait(); code != 0 || err != nil || !appears(runs) {
				t.Errorf("got exit code %d, %v; want 0", code, err)
			}
		})
	}
}

// EndCommand ends the command only if the user interrupted the measurement.
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
		t.Fatal("EndCommand ended a command without an interrupt")
	case <-time.After(50 * time.Millisecond):
	}
	if err := EndCommand(interrupted, launched); err != nil {
		t.Fatal(err)
	}
	if code, err := launched.Wait(); code != 128+15 || err != nil {
		t.Errorf("got exit code %d, %v; want the code of SIGTERM", code, err)
	}
	if err := errors.Join(EndCommand(interrupted, launched), EndCommand(interrupted, nil)); err != nil {
		t.Errorf("EndCommand of an ended command: %v", err)
	}
}

// Await returns the command's exit code, unless the measurement failed.
func TestAwait(t *testing.T) {
	failure := errors.New("measuring failed")
	for name, test := range map[string]struct {
		script string
		err    error
		code   int
	}{
		"the command's exit code": {"exit 7", nil, 7},
		"killed":                  {"kill -KILL $$", nil, 128 + 9},
		"failed":                  {"exit 7", failure, 1},
	} {
		t.Run(name, func(t *testing.T) {
			launched := launch(t, test.script)
			if err := launched.Release(); err != nil {
				t.Fatal(err)
			}
			testenv.Receive(t, launched.Done(), "the command does not end")
			code, err := Await(t.Context(), launched, test.err, io.Discard, true)
			if code != test.code || !errors.Is(err, test.err) {
				t.Errorf("got exit code %d, %v; want %d, %v", code, err, test.code, test.err)
			}
		})
	}
}

// Await kills a command that was never released.
func TestAwaitHeld(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	failure := errors.New("nothing can be measured")
	code, err := Await(t.Context(), launch(t, `: > "$1"`, runs), failure, io.Discard, true)
	if code != 1 || !errors.Is(err, failure) {
		t.Errorf("got exit code %d, %v; want 1, %v", code, err, failure)
	}
	if _, err := os.Stat(runs); err == nil {
		t.Error("the command ran")
	}
}

// printed is an output that closes text when a line about the command has been written.
type printed struct {
	bytes.Buffer
	text chan struct{}
}

func (p *printed) Write(b []byte) (int, error) {
	before := strings.Contains(p.String(), "the command")
	n, err := p.Buffer.Write(b)
	if !before && strings.Contains(p.String(), "the command") {
		close(p.text)
	}
	return n, err
}

// If a command is slow to exit, Await asks it to exit and prints a message, unless the
// user wants none.
func TestAwaitLong(t *testing.T) {
	for name, test := range map[string]struct {
		quiet bool
		err   error
		ended bool // the user has asked the command to exit
		want  []string
	}{
		"default":              {want: []string{"waiting for the command (pid ", "(Ctrl-C asks it to exit)"}},
		"quiet":                {quiet: true},
		"quiet, with an error": {quiet: true, err: errors.New("no\x1broom"), want: []string{`fulgur: no\x1broom`, "waiting for the command"}},
		"asked by the user":    {ended: true, want: []string{"(asked to exit; Ctrl-C leaves it running)"}},
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
				t.Fatal("the command does not start")
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.ended {
				cancel()
			}
			out := &printed{text: make(chan struct{})}
			go func() {
				if len(test.want) > 0 {
					<-out.text
				} else {
					time.Sleep(3 * QuietWait)
				}
				cancel()
				_ = os.WriteFile(leave, nil, 0o644)
			}()
			code, err := Await(ctx, launched, test.err, out, test.quiet)
			if test.err != nil {
				if code != 1 || !errors.Is(err, test.err) {
					t.Errorf("got exit code %d, %v; want 1, %v", code, err, test.err)
				}
			} else if code != 3 || err != nil {
				t.Errorf("got exit code %d, %v; want 3, from the command's trap", code, err)
			}
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("got no %q in %q", want, out.String())
				}
			}
			if len(test.want) == 0 && out.String() != "" {
				t.Errorf("got %q, want no output", out.String())
			}
		})
	}
}
