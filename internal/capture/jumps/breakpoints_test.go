package jumps_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/jumps"
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
	for range 3 {
		e, err := breakpoint(cmd.Process.Pid, at)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
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

// If uprobes stall threads for longer than allowed, breakpoints replace them.
func TestFallback(t *testing.T) {
	needs(t, jumps.Uprobes)
	needs(t, jumps.Breakpoints)
	path := openJumps(t).path
	cmd := start(t, path, "threads")
	for _, probes := range []jumps.Probes{jumps.Any, jumps.Uprobes} {
		p, err := open(path) // it remembers which code was reached
		if err != nil {
			t.Fatal(err)
		}
		p.probes, p.maxStall = probes, time.Nanosecond
		c, err := p.count(target.Target{Scope: target.Processes, PIDs: []int{cmd.Process.Pid}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s := awaitStats(t, c, "long stalls", func(s jumps.Stats) bool {
			if probes == jumps.Any {
				return s.Fallback != "" && s.Breakpoints.Windows > 10
			}
			return s.Stalls > 10
		})
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		if fell := strings.Contains(s.Fallback, "stalled"); fell != (probes == jumps.Any) {
			t.Errorf("probes %d: got fallback %q", probes, s.Fallback)
		}
		p.checkText(t, cmd.Process.Pid, p.path)
	}
}

// Windows take no more than their share of the program's time, by the program's own progress.
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
