package jumps_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/branches/jumps"
	"fulgur/internal/capture/target"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/fusetest"
)

// If the process that attaches probes is stuck in the kernel, as on a file system that does not
// respond, the counting ends nevertheless, and the counts so far are valid.
func TestStuckHelper(t *testing.T) {
	needsUprobeMulti(t)
	p := openJumps(t)
	cmd := start(t, p.path, "threads")
	pid := cmd.Process.Pid
	o := p.options(target.Target{Scope: target.Processes, PIDs: []int{pid}})
	var compared atomic.Int64
	o.Compare = func(uint64, []byte) (same, known bool) {
		compared.Add(1)
		return true, true
	}
	c, err := jumps.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	addr, _ := p.symbol(t, "quarter")
	c.Sampled(addr)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	before := windows(t, c, 2)
	// There are no requests while the program is traced.
	if err := unix.PtraceSeize(pid); err != nil {
		t.Fatal(err)
	}
	traced := awaitStats(t, c, "no more windows", func(s jumps.Stats) bool {
		return s.Traced >= before.Traced+2 || s.Held > before.Held
	})
	signalHelper(t, unix.SIGSTOP)
	defer signalHelper(t, unix.SIGCONT)
	compared.Store(0)
	stopTracing(t, pid)
	awaitStats(t, c, "another window", func(jumps.Stats) bool { return traced.Held > before.Held || compared.Load() > 0 })
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	s, err := c.Stats()
	if err != nil || !s.Unanswered || s.Windows < before.Windows || c.Counts() == nil {
		t.Errorf("got %+v, %v; want the windows so far, and that one was not answered", s, err)
	}
}

// Programs on FUSE are refused.
func TestCountOnFUSE(t *testing.T) {
	needsUprobeMulti(t)
	testenv.AnyKernel(t)
	path := testenv.Compile(t, "jumps", "gcc", "-O1", "-no-pie", "-pthread", "testdata/jumps.c", "-ldl")
	p, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	mounted, stop := fusetest.Mount(t, path)
	if p.file, err = safeopen.OpenTrusted(mounted, safeopen.AsUser, safeopen.Regular); err != nil {
		t.Fatal(err)
	}
	defer p.file.Close()
	stop()
	if c, err := jumps.New(p.options(target.Target{Scope: target.System})); c != nil || !errors.Is(err, jumps.ErrUnsupported) {
		t.Errorf("got error %v, want %v", err, jumps.ErrUnsupported)
	}
}
