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
// Otherwise, a heap of 3 MB would be collected once for each megabyte that it grows: 3 times per second
// while short processes run.
const collectAfter = 4 << 20

// smallestHeap is the size in bytes below which the runtime does not collect garbage at 100 %. This size
// is proportional to the percentage: 16 MB at 400 %.
const smallestHeap = 4 << 20

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
	if percent, changes := c.next(c.live[0].Value.Uint64()); changes {
		debug.SetGCPercent(percent)
		c.now = percent
	}
}

// next returns the percentage for a heap of which live bytes survived the last collection, and whether
// to set it. Setting it stops all goroutines, so small changes are left out, except the one to the usual
// percentage, which a growing heap would otherwise never reach.
func (c *collector) next(live uint64) (percent int, changes bool) {
	percent = max(c.usual, growth(live))
	differs := percent - c.now
	return percent, percent == c.usual && differs != 0 || max(differs, -differs) > c.now/4
}

// growth returns the percentage at which a heap with live bytes grows by collectAfter.
func growth(live uint64) int {
	// The runtime applies the percentage to the live bytes and to smallestHeap, and takes the larger result.
	return int(min(100*(live+collectAfter)/smallestHeap, 100*collectAfter/max(live, 1)))
}
