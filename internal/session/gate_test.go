package session

import (
	"context"
	"io"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"fulgur/internal/capture/hits"
	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/testenv"
)

// enabled is a pipeline that closes a channel when the measurement has begun.
type enabled struct {
	pipeline
	began chan struct{}
	once  sync.Once
}

func (e *enabled) polled(now time.Time) error {
	e.once.Do(func() { close(e.began) })
	return e.pipeline.polled(now)
}

// All events of a run count in the same window. A thread's hits in the window are consecutive, so
// functions that it calls in turn count equally often, except that the window may begin and end
// within a turn. The same is true for their calls.
func TestEventsShareWindow(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	program := testenv.Compile(t, "turns", "gcc", "-O1", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror", "testdata/turns.c")
	var events []string
	for _, function := range []string{"first", "second", "third", "fourth"} {
		events = append(events, "uprobe:"+program+":"+function)
	}
	for name, what := range map[string]source.Subject{
		"hits":      hits.New(hits.Config{Events: events}),
		"intervals": latency.New(latency.Config{Events: events}),
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			o := &Options{
				Target: target.Target{Scope: target.Processes, PIDs: []int{cmd.Process.Pid}},
				Format: "folded", Unwind: "fp", Stderr: io.Discard, Quiet: true,
			}
			if err := o.complete(what); err != nil {
				t.Fatal(err)
			}
			if err := what.Choose(); err != nil {
				t.Fatal(err)
			}
			r, err := newRun(what, o, debugfiletest.NewFinder(t))
			if err != nil {
				t.Fatal(err)
			}
			var got collected
			defer func() {
				if err := r.close(); err != nil {
					t.Error(err)
				}
			}()
			newWindows(r, SinkFunc(func(_ context.Context, w Window) error { return got.take(w) }))
			w := &enabled{pipeline: r.pipeline, began: make(chan struct{})}
			r.pipeline = w
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			done := make(chan error, 1)
			go func() { done <- r.measure(ctx, nil) }()
			testenv.Receive(t, w.began, "the measurement does not begin")
			testenv.AwaitCPUTime(t, cmd.Process.Pid, 50*time.Millisecond)
			interrupt()
			if err := testenv.Receive(t, done, "the measurement does not end"); err != nil {
				t.Fatal(err)
			}

			p := got[0].Profile
			var counts []int64
			for _, event := range events {
				own := slices.IndexFunc(p.ValueTypes, func(v profile.ValueType) bool { return v.Type == event+" "+name })
				counts = append(counts, p.Total(own))
			}
			if least, most := slices.Min(counts), slices.Max(counts); least == 0 || most > least+1 {
				t.Errorf("got %d, want equal numbers above 0, or numbers that differ by one", counts)
			}
		})
	}
}
