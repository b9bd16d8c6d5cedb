package oncpu

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

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
