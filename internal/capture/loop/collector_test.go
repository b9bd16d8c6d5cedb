package loop

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// A small heap grows by collectAfter, or a little more for stacks and globals, from one collection to
// the next: the runtime's minimum for the size of the heap grows with the percentage.
func TestCollectorGoal(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	runtime.GC()
	newCollector(false).adjust()
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}}
	metrics.Read(heap)
	live, goal := heap[0].Value.Uint64(), heap[1].Value.Uint64()
	if goal < live+collectAfter/2 || goal > live+2*collectAfter {
		t.Errorf("a heap of %d bytes may grow to %d, want about %d more", live, goal, collectAfter)
	}
}

// The percentage falls to the usual one as the heap grows, in a few steps.
func TestCollectorSteps(t *testing.T) {
	for limited, usual := range map[bool]int{false: gcPercent, true: gcPercentLimited} {
		c, steps := newCollector(limited), 0
		for live := uint64(3 << 20); live < 100<<20; live += 100 << 10 {
			percent, changes := c.next(live)
			if changes {
				c.now = percent
				steps++
			}
		}
		if c.now != usual || steps < 2 || steps > 10 {
			t.Errorf("limited: %t: got %d %% after %d steps, want %d %% after a few", limited, c.now, steps, usual)
		}
		if _, changes := c.next(100 << 20); changes {
			t.Errorf("limited: %t: a heap of the same size changes the percentage", limited)
		}
	}
}
