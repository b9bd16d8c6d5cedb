package unwinding

import (
	"os/exec"
	"testing"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/process"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/testenv"
)

// Of all processes, those that used CPU time since the last call have tables before the first sample.
func TestPrepareBusy(t *testing.T) {
	testenv.Root(t)
	var u Unwinder
	if err := u.Load(Options{Scope: target.System}, debugfiletest.NewFinder(t), nil); err != nil {
		t.Fatal(err)
	}
	table := process.NewTable(process.Options{})
	t.Cleanup(func() {
		table.Close()
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	start := func(args ...string) (pid int) {
		c := exec.Command(args[0], args[1:]...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill() // it does not end by itself
			_ = c.Wait()
		})
		return c.Process.Pid
	}
	const busyLoop = "while :; do :; done"
	busy, idle := start("sh", "-c", busyLoop), start(testenv.Tool(t, "sleep"), "infinity")
	left := start("sh", "-c", busyLoop) // by rules
	u.Leaves = func(pid int) bool { return pid == left }
	testenv.AwaitCPUTime(t, busy, 20*time.Millisecond) // it has started
	testenv.AwaitCPUTime(t, left, 20*time.Millisecond)
	if err := u.Prepare(table, nil, false); err != nil {
		t.Fatal(err)
	}
	if u.loader.Known(busy) || u.loader.Known(idle) {
		t.Error("a process has tables before its CPU time is known")
	}
	before := u.cpuTime[idle]
	testenv.AwaitCPUTime(t, busy, 100*time.Millisecond) // several ticks
	testenv.AwaitCPUTime(t, left, 100*time.Millisecond)
	if err := u.Prepare(table, nil, false); err != nil {
		t.Fatal(err)
	}
	if !u.loader.Known(busy) {
		t.Error("the busy process has no tables")
	}
	// It may still be starting.
	if used := u.cpuTime[idle] > before; u.loader.Known(idle) != used {
		t.Errorf("the idle process has tables: %v, want %v", !used, used)
	}
	u.backlog.asked(left, 1)
	u.layOut(table)
	if u.loader.Known(left) {
		t.Error("a process that rules leave out has tables")
	}
	if _, asked := u.backlog.wanted[left]; !asked {
		t.Error("a process that rules leave out is not examined again")
	}
}
