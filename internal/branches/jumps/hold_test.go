package jumps_test

import (
	"bytes"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/branches/jumps"
	"fulgur/internal/capture/target"
	"fulgur/internal/testenv"
)

// If a tracer attaches during a window, the window stays until the tracer detaches. The
// tracer then restores a probe that it took for the program's code, which does no harm.
func TestHold(t *testing.T) {
	needsUprobeMulti(t)
	p := openJumps(t)
	cmd := start(t, p.path, "threads")
	pid := cmd.Process.Pid
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	c, err := p.count(target.Target{Scope: target.Processes, PIDs: []int{pid}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	addr, size := p.symbol(t, "quarter")
	file, code := make([]byte, size), make([]byte, size)
	offset, _ := p.elf.Offset(addr)
	if _, err := p.file.ReadAt(file, int64(offset)); err != nil {
		t.Fatal(err)
	}
	read := func() []byte {
		if _, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &code[0], Len: size}}, []unix.RemoteIovec{{Base: uintptr(addr), Len: int(size)}}, 0); err != nil {
			t.Fatal(err)
		}
		return code
	}
	const enough = 100 // rounds
	done := false
	for round := 0; !done; round++ {
		if round == enough {
			t.Fatalf("no window is held in %d rounds: %+v", enough, stats(t, c))
		}
		// Await would miss most of a window, which is short.
		for end := time.Now().Add(testenv.TimeLimit()); bytes.Equal(read(), file); runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("timeout: no window changes the code: %+v", stats(t, c))
			}
		}
		if err := unix.PtraceSeize(pid); err != nil {
			t.Fatal(err)
		}
		if err := unix.PtraceInterrupt(pid); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
			t.Fatal(err)
		}
		// The window closes if that had begun, and otherwise stays.
		testenv.Await(t, func() bool {
			done = stats(t, c).Held > 0
			return done || bytes.Equal(read(), file)
		}, func() string { return fmt.Sprintf("the window neither closes nor is held: %+v", stats(t, c)) })
		for range 150 {
			if done && bytes.Equal(read(), file) {
				t.Fatal("the probes of the held window are gone")
			}
			if done {
				time.Sleep(time.Millisecond)
			}
		}
		if done { // as a debugger that removes its own breakpoint from a probe
			if _, err := unix.PtracePokeText(pid, uintptr(addr), read()); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.PtraceDetach(pid); err != nil {
			t.Fatal(err)
		}
	}
	windows(t, c, stats(t, c).Windows+2)
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	p.checkText(t, pid, p.path)
	p.progresses(t, pid)
}

// stats returns the statistics of c.
func stats(t *testing.T, c *jumps.Counter) jumps.Stats {
	t.Helper()
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Jumps are not counted while their code in memory is not the file's.
func TestChangedLater(t *testing.T) {
	needsUprobeMulti(t)
	p := openJumps(t)
	cmd := start(t, p.path, "threads")
	o := p.options(target.Target{Scope: target.Processes, PIDs: []int{cmd.Process.Pid}})
	addr, size := p.symbol(t, "quarter")
	var changed atomic.Bool
	o.Compare = func(_ uint64, code []byte) (same, known bool) {
		return len(code) == int(size) || !changed.Load(), true // whole functions are compared once
	}
	c, err := jumps.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Sampled(addr)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	windows(t, c, 1)
	changed.Store(true)
	// One window may be open. Each further one would have changed jumps, which are few.
	then := awaitStats(t, c, "changed jumps", func(s jumps.Stats) bool { return s.Changed >= 2 })
	now := awaitStats(t, c, "more changed jumps", func(s jumps.Stats) bool { return s.Changed >= 2+30 })
	if now.Windows > then.Windows+1 {
		t.Errorf("got %d windows with changed code", now.Windows-then.Windows)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
}
