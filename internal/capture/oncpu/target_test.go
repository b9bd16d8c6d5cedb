package oncpu

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// await waits until met accepts the target set.
func (h *harness) await(t *testing.T, want string, met func([]int) bool) {
	t.Helper()
	var ids []int
	testenv.Await(t, func() bool {
		var err error
		if ids, err = h.Targets(); err != nil {
			t.Fatal(err)
		}
		return met(ids)
	}, func() string { return fmt.Sprintf("got target set %v, want %s", ids, want) })
}

// Children enter the target set and leave it when they exit, so it does not fill up. The
// target itself also leaves it.
func TestTargetSet(t *testing.T) {
	testenv.OneKernel(t)
	testenv.Root(t)
	testenv.Tool(t, "true")
	pid := load(t, "children")
	h := start(t, Options{Options: roomy},
		target.Target{Scope: target.Processes, PIDs: []int{pid}, Children: true}, Rate{Frequency: 997})
	seen := map[int]bool{}
	h.await(t, "one child after the other, and samples", func(ids []int) bool {
		for _, id := range ids {
			seen[id] = true
		}
		stats, err := h.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return len(seen) > 10 && stats.Samples > 0
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	// The last child has been reparented, and its new parent may not reap it.
	h.await(t, "nothing but perhaps a child", func(ids []int) bool {
		return len(ids) <= 1 && !slices.Contains(ids, pid)
	})
	if stats, err := h.Stats(); err != nil || stats.Losses[profile.LossUntracked] > 0 {
		t.Errorf("got %+v, %v; want no untracked process", stats, err)
	}
}

// A process that gets the PID of a target that has exited is not sampled.
func TestTargetReused(t *testing.T) {
	testenv.VM(t) // elsewhere, other tests would get PIDs that have just been used
	const lastPID = "/proc/sys/kernel/ns_last_pid"
	first := command(t, "deep")
	pid := first.Process.Pid
	h := start(t, Options{Options: roomy}, target.Target{Scope: target.Processes, PIDs: []int{pid}}, Rate{Frequency: 997})
	samples := func() uint64 {
		t.Helper()
		stats, err := h.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return stats.Samples
	}
	testenv.Await(t, func() bool { return samples() > 0 }, func() string { return "the target is not sampled" })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed
	h.await(t, "without the target", func(ids []int) bool { return !slices.Contains(ids, pid) })
	before := samples()
	testenv.Await(t, func() bool {
		if err := os.WriteFile(lastPID, []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Fatal(err)
		}
		second := command(t, "deep")
		if second.Process.Pid != pid {
			_ = second.Process.Kill() // another process was faster
		}
		return second.Process.Pid == pid
	}, func() string { return "no process gets the PID again" })
	testenv.AwaitCPUTime(t, pid, 100*time.Millisecond)
	if after := samples(); after != before {
		t.Errorf("got %d samples of another process with the target's PID", after-before)
	}
}
