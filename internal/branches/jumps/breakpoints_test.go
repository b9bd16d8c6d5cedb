package jumps_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/branches/jumps"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
)

// breakpoint opens an execute breakpoint in the first thread of a process.
func breakpoint(pid int, addr uint64) (*perfevent.Event, error) {
	return perfevent.Open(perfevent.Attr{
		Type: unix.PERF_TYPE_BREAKPOINT, BreakpointType: perfevent.BreakpointExecute, Config1: addr, Config2: 8,
		Period: 1 << 40, Disabled: true, ExcludeKernel: true,
	}, pid, -1)
}

// SIGKILL leaves no breakpoint in the program.
func TestBreakpointsKilled(t *testing.T) {
	needs(t, jumps.Breakpoints)
	p := openJumps(t)
	p.probes = jumps.Breakpoints
	cmd := start(t, p.path, "threads")
	at, _ := p.symbol(t, "main")
	for range 5 {
		helper := p.helper(t, cmd.Process.Pid)
		time.Sleep(50 * time.Millisecond)
		if err := helper.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = helper.Wait()
		var events []*perfevent.Event
		for range 4 {
			e, err := breakpoint(cmd.Process.Pid, at)
			if err != nil {
				t.Fatalf("breakpoint %d: %v", len(events)+1, err)
			}
			events = append(events, e)
		}
		for _, e := range events {
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.progresses(t, cmd.Process.Pid)
	p.checkText(t, cmd.Process.Pid, p.path)
}

// Counting makes do with the breakpoints that others leave.
func TestBreakpointsTaken(t *testing.T) {
	needs(t, jumps.Breakpoints)
	p := openJumps(t)
	p.probes = jumps.Breakpoints
	cmd := start(t, p.path, "fork") // its first thread does not end
	at, _ := p.symbol(t, "main")
	var taken []*perfevent.Event
	defer func() {
		for _, e := range taken {
			_ = e.Close()
		}
	}()
	for {
		e, err := breakpoint(cmd.Process.Pid, at)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, e)
	}
	if err := taken[0].Close(); err != nil { // all but one are taken
		t.Fatal(err)
	}
	c, err := p.count(target.Target{Scope: target.Threads, TIDs: []int{cmd.Process.Pid}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Sampled(at)
	awaitStats(t, c, "windows with one breakpoint", func(s jumps.Stats) bool { return s.Breakpoints.Taken > 2 && s.Outcomes > 0 })
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
}

// Breakpoints replace uprobes while the program runs.
func TestFallback(t *testing.T) {
	needs(t, jumps.Uprobes)
	needs(t, jumps.Breakpoints)
	p := openJumps(t)
	p.probes = jumps.Any
	cmd := start(t, p.path, "threads")
	c, err := p.count(target.Target{Scope: target.Processes, PIDs: []int{cmd.Process.Pid}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	awaitStats(t, c, "jumps", func(s jumps.Stats) bool { return s.Jumps > 0 })
	c.FallBack("reason")
	s := awaitStats(t, c, "breakpoints", func(s jumps.Stats) bool { return s.Unanswered || s.Breakpoints.Windows > 20 })
	windows := s.Windows
	s = awaitStats(t, c, "more breakpoints", func(s jumps.Stats) bool { return s.Unanswered || s.Breakpoints.Windows > 40 })
	if s.Windows != windows || s.Fallback != "reason" {
		t.Errorf("got %d windows of uprobes more, fallback %q", s.Windows-windows, s.Fallback)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, j := range c.Counts().Jumps {
		if !j.Breakpoint {
			t.Errorf("%+v is left to uprobes", j)
		}
	}
	p.checkText(t, cmd.Process.Pid, p.path)
}

// Windows take no more than their share of the time, by the measured costs. The benchmark (bench/bolt
// -cost) compares this with the progress of a program.
func TestBreakpointBudget(t *testing.T) {
	for _, share := range []float64{0.02, 0.1} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			needs(t, jumps.Breakpoints)
			p := openJumps(t)
			p.probes, p.overhead = jumps.Breakpoints, share
			cmd := start(t, p.path, "threads")
			_, s := measure(t, p, target.Target{Scope: target.Processes, PIDs: []int{cmd.Process.Pid}}, 40, 1)
			// The first window opens before anything is known.
			if s.Overhead > share*1.5 {
				t.Errorf("windows took %.3f of the time, want at most %.3f; %+v", s.Overhead, share, s)
			}
		})
	}
}
