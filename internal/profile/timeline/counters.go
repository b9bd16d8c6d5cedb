package timeline

import (
	"time"

	"fulgur/internal/profile"
)

// counterStep is the resolution of counters.
const counterStep = int64(50 * time.Millisecond)

type counterKey struct {
	process profile.ProcessID
	kind    profile.CounterKind
}

// counter is a counter in progress. Its last time is the end of the current step.
type counter struct{ times, changes []int64 }

// Count records the change of a quantity of a process at a time. Quantities derived from
// events are counted when these are added.
func (r *Recorder) Count(p profile.ProcessID, kind profile.CounterKind, at, change int64) {
	k := counterKey{p, kind}
	c := r.counters[k]
	if c == nil {
		c = &counter{times: []int64{r.start}, changes: []int64{0}}
		r.counters[k] = c
		r.order = append(r.order, k)
	}
	last := len(c.times) - 1
	if at <= c.times[last] && last > 0 {
		c.changes[last] += change // of this step, or slightly late from another thread
		return
	}
	begin := r.start + max(0, at-r.start)/counterStep*counterStep
	c.rest(begin)
	c.add(begin+counterStep, change)
}

// rest records that nothing changed until at, so that a rate drawn between two times
// drops at once.
func (c *counter) rest(at int64) {
	if last := c.times[len(c.times)-1]; last+counterStep < at {
		c.add(last+counterStep, 0)
	}
	if c.times[len(c.times)-1] < at {
		c.add(at, 0)
	}
}

func (c *counter) add(at, change int64) {
	c.times = append(c.times, at)
	c.changes = append(c.changes, change)
}

// finishCounters returns all counters. Each lasts from the start of its process to its end,
// within the recording, which lasts until end: a quantity that no longer changes is still
// there.
func (r *Recorder) finishCounters(processes []profile.Process, end int64) []profile.Counter {
	all := make([]profile.Counter, len(r.order))
	for i, k := range r.order {
		c, p := r.counters[k], processes[k.process]
		first, last := max(r.start, p.Start), end
		if p.End != 0 {
			last = min(last, p.End)
		}
		c.rest(last)
		c.clip(first, max(first, last))
		all[i] = profile.Counter{Process: k.process, Kind: k.kind, Times: c.times, Changes: c.changes}
	}
	return all
}

// clip moves values outside of the time from first to last to its borders.
func (c *counter) clip(first, last int64) {
	var clipped counter
	for i, at := range c.times {
		at = max(first, min(at, last))
		if n := len(clipped.times); n > 0 && clipped.times[n-1] == at {
			clipped.changes[n-1] += c.changes[i]
			continue
		}
		clipped.add(at, c.changes[i])
	}
	*c = clipped
}
