package loop

import (
	"runtime/debug"
	"runtime/metrics"
)

// Values for [debug.SetGCPercent]. Before and after sampling, most allocations are
// short-lived: 22 collections took a quarter of the startup time. While sampling, the
// live data, stacks and counts, grow slowly, so frequent collections are cheap and keep
// memory low. A measurement for months has more live data, and the caller limits its memory.
const (
	GCPercentAtStart = 200
	gcPercent        = 40
	gcPercentLimited = 100
	gcPercentAtEnd   = 100
)

// collectAfter is the minimum growth of the heap, in bytes, from one garbage collection to the next.
// A percentage of a heap of 3 MB would be a collection for each megabyte: 3 per second while short
// processes run.
const collectAfter = 4 << 20

// collector sets the percentage by which the heap grows between garbage collections.
type collector struct {
	usual int // minimum percentage
	now   int // the one that is set, 0 if none
	live  []metrics.Sample
}

func newCollector(limited bool) *collector {
	c := &collector{usual: gcPercent, live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	if limited {
		c.usual = gcPercentLimited
	}
	return c
}

// adjust sets the percentage for the current size of the heap.
func (c *collector) adjust() {
	metrics.Read(c.live)
	percent := growth(c.live[0].Value.Uint64(), c.usual)
	// Each change stops all goroutines.
	if differs := percent - c.now; max(differs, -differs) > c.now/4 {
		debug.SetGCPercent(percent)
		c.now = percent
	}
}

// growth returns the percentage for a heap with live bytes that survived the last collection.
func growth(live uint64, usual int) int {
	return max(usual, int(100*collectAfter/max(live, collectAfter/4)))
}
