package offcpu

import (
	"os"
	"testing"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/capture/waits"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/symbolize"
)

// Waits of fulgur for a grace period, which the measurement may cause, have a reason of
// their own. Its other waits, and other programs' waits, do not.
func TestOwnGracePeriod(t *testing.T) {
	const membarrier, futex = 0xffffffff81000100, 0xffffffff81000200
	own := uint32(os.Getpid())
	for _, c := range []struct {
		pid     uint32
		address uint64
		want    waits.Reason
	}{
		{own, membarrier, "fulgur's own grace period"}, {own, futex, "futex"}, {own + 1, membarrier, "grace period"},
	} {
		store := stackstest.NewStore(t, stackstest.Layout{}, stackstest.Trace{ID: 1, PID: c.pid, Comm: "fulgur", Kernel: []uint64{c.address}, KernelEnd: stackstest.Ended})
		names := naming.Given(store, debugfiletest.NewFinder(t), map[uint64][]symbolize.Frame{
			membarrier: {{Name: "synchronize_rcu_normal"}}, futex: {{Name: "futex_wait_queue"}},
		})
		b := profile.NewBuilder(profile.ValueType{Type: "waits", Unit: "count"})
		p := naming.NewStackBuilder(b, store, names)
		var at source.EventStack
		(&Source{}).PlaceEvents(p, 0, &at)
		stack := (&Subject{}).Place(p, stacks.Sample{})
		b.Add(profile.Sample{Stack: stack, Task: b.Task(profile.Task{Comm: "fulgur"}), CPU: -1, Values: []int64{1}})
		made := b.Profile(profile.Meta{}, profile.Losses{})
		if got := made.FrameName(made.Stacks[stack].Frame); got != "["+string(c.want)+"]" || at.Reason != string(c.want) || at.Mark != got {
			t.Errorf("process %d at %#x: got %s, and %q as %q in a recording; want %q", c.pid-own, c.address, got, at.Reason, at.Mark, c.want)
		}
	}
}
