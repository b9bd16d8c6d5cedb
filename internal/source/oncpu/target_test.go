package oncpu

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"fulgur/internal/target"
	"fulgur/internal/testenv"
)

// targets returns the ids in the kernel side's target set.
func (h *harness) targets(t *testing.T) []uint32 {
	t.Helper()
	for {
		var ids []uint32
		var id uint32
		var start uint64
		all := h.objects.TargetIds.Iterate()
		for all.Next(&id, &start) {
			ids = append(ids, id)
		}
		if err := all.Err(); err == nil {
			return ids
		} else if !errors.Is(err, ebpf.ErrIterationAborted) { // by a change meanwhile
			t.Fatal(err)
		}
	}
}

// await waits until the target set is as wanted.
func (h *harness) await(t *testing.T, want string, met func([]uint32) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !met(h.targets(t)); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the target set is %v, want %s", h.targets(t), want)
		}
	}
}

// Children enter the target set, and leave it when they end, so that it does
// not fill up; so does the target itself.
func TestTargetSet(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "true")
	pid := load(t, "children")
	h := start(t, Options{RingSize: DefaultRingSize, CountEntries: DefaultCountEntries, SeenEntries: DefaultSeenEntries},
		target.Target{Scope: target.Processes, PIDs: []int{pid}, Children: true}, Rate{Frequency: 997})
	seen := map[uint32]bool{}
	h.await(t, "one child after the other", func(ids []uint32) bool {
		for _, id := range ids {
			seen[id] = true
		}
		return len(seen) > 10
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	// Its last child is left to another parent, who may not wait for it.
	h.await(t, "nothing but perhaps a child", func(ids []uint32) bool {
		return len(ids) <= 1 && !slices.Contains(ids, uint32(pid))
	})
	if stats, err := h.Stats(); err != nil || stats.Samples == 0 || stats.Losses.Untracked > 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}
