package timeline

import (
	"iter"
	"slices"

	"fulgur/internal/profile"
)

// Part is a part of a recording, for [Join].
type Part struct {
	*Recorder // sealed
	// Stack translates the numbers of its stacks to those of the whole.
	Stack func(profile.StackID) profile.StackID
}

// Join returns the timeline from start to end of the parts of a recording, in order of time; none is
// missing between them. p holds the tables of its stacks. Events may lie outside of that time, and begin in
// an earlier part than the one that has them. Nothing changes in the parts, which must stay open.
func Join(p *profile.Profile, start, end int64, parts []Part) *profile.Timeline {
	j := joining{
		whole: newSpooled(start, spool{}),
		to:    &joined{parts: parts},
		rss:   map[profile.ProcessID]int64{},
	}
	for i, part := range parts {
		j.add(i, part.Recorder)
	}
	t := &profile.Timeline{Profile: p, Start: start, End: end, Events: j.to}
	if len(parts) > 0 {
		t.MarkerTypes = slices.Clone(parts[len(parts)-1].types)
	}
	j.whole.tables(t)
	t.Counters = j.whole.finishCounters(t.Processes, end)
	return t
}

// joining joins parts.
type joining struct {
	whole *Recorder // has no events
	to    *joined
	rss   map[profile.ProcessID]int64 // resident memory in bytes so far
}

// add adds the tables of a part.
func (j *joining) add(part int, r *Recorder) {
	processes := make([]profile.ProcessID, len(r.processes))
	for i, of := range r.processes {
		id := j.whole.Process(of.pid, of.start)
		processes[i] = id
		for _, n := range of.names {
			j.whole.NameProcess(id, n.At, n.Name)
		}
		j.whole.processes[id].end = max(j.whole.processes[id].end, of.end)
	}
	for i := range r.threads {
		of := &r.threads[i]
		id := j.whole.Thread(processes[of.process], of.tid, of.start)
		if int(id) == len(j.to.threads) {
			j.to.threads = append(j.to.threads, nil)
		}
		j.to.threads[id] = append(j.to.threads[id], place{part, profile.ThreadID(i)})
		for _, n := range of.names {
			j.whole.NameThread(id, n.At, n.Name)
		}
		to := &j.whole.threads[id]
		to.end, to.seen = max(to.end, of.end), max(to.seen, of.seen)
	}
	for _, k := range r.order {
		j.count(processes[k.process], k.kind, r.counters[k])
	}
}

// count adds the changes of a counter of a part. Resident memory begins at 0 in each part.
func (j *joining) count(p profile.ProcessID, kind profile.CounterKind, c *counter) {
	level := int64(0)
	for i, change := range c.changes {
		level += change
		if change == 0 {
			continue
		}
		if kind == profile.CounterRSS {
			change = level - j.rss[p]
			j.rss[p] = level
		}
		at := c.times[i] - 1 // in the step that ends at the time
		if kind == profile.CounterRSS {
			at = max(at, j.whole.start) // what there was before is still there
		}
		if at >= j.whole.start {
			j.whole.Count(p, kind, at, change)
		}
	}
}

// place is a thread of a part.
type place struct {
	part   int
	thread profile.ThreadID
}

// joined are the events of parts. It implements [profile.Events].
type joined struct {
	parts   []Part
	threads [][]place // in order of the parts
}

// of returns the events of a part.
func (j *joined) of(at place) *events {
	part := j.parts[at.part]
	return &events{r: part.Recorder, stack: part.Stack}
}

// concatenate yields the events of all parts of a thread.
func concatenate[E any](j *joined, t profile.ThreadID, read func(*events, profile.ThreadID) iter.Seq2[E, error]) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for _, at := range j.threads[t] {
			for e, err := range read(j.of(at), at.thread) {
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

// OnCPU implements [profile.Events].
func (j *joined) OnCPU(t profile.ThreadID) iter.Seq2[profile.OnCPU, error] {
	return concatenate(j, t, (*events).OnCPU)
}

// BlockIO implements [profile.Events].
func (j *joined) BlockIO(t profile.ThreadID) iter.Seq2[profile.BlockIO, error] {
	return concatenate(j, t, (*events).BlockIO)
}

// Faults implements [profile.Events].
func (j *joined) Faults(t profile.ThreadID) iter.Seq2[profile.Fault, error] {
	return concatenate(j, t, (*events).Faults)
}

// Markers implements [profile.Events].
func (j *joined) Markers(t profile.ThreadID) iter.Seq2[profile.Marker, error] {
	return concatenate(j, t, (*events).Markers)
}

// OffCPU implements [profile.Events]. It joins periods that were split while they were in progress.
func (j *joined) OffCPU(t profile.ThreadID) iter.Seq2[profile.OffCPU, error] {
	return func(yield func(profile.OffCPU, error) bool) {
		var last profile.OffCPU
		held := false
		for w, err := range concatenate(j, t, (*events).OffCPU) {
			if err != nil {
				yield(w, err)
				return
			}
			if held && Continues(last, w) {
				last = Continue(last, w)
				continue
			}
			if held && !yield(last, nil) {
				return
			}
			last, held = w, true
		}
		if held {
			yield(last, nil)
		}
	}
}

// Continues reports whether w is the rest of a period off the CPU that was split while it was in progress:
// a thread that had run would have left the CPU later than it came.
func Continues(first, w profile.OffCPU) bool {
	return first.Waker.PID == 0 && first.Stack == w.Stack && first.State == w.State && first.Start+first.Duration == w.Start
}

// Continue returns the whole of a period off the CPU.
func Continue(first, rest profile.OffCPU) profile.OffCPU {
	whole := rest
	whole.Start, whole.Duration = first.Start, first.Duration+rest.Duration
	if rest.Runnable == rest.Duration {
		whole.Runnable += first.Runnable
	}
	return whole
}
