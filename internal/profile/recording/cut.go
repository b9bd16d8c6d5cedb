// Package recording selects parts of recordings, and adds up their events.
package recording

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"fulgur/internal/profile"
)

// Span is a part of a recording in nanoseconds since its start: from From up to To, without To.
type Span struct{ From, To int64 }

// Whole is the span of all events, also of those outside of the start and the end.
var Whole = Span{math.MinInt64, math.MaxInt64}

// Cut returns the parts of a recording within spans, which are sorted and apart. It begins with the first
// one, and ends with the last. Samples, page faults and markers belong to the span of their time, and
// requests to that of their completion, so each of them is in at most one part. Periods off the CPU are
// cut where a span begins or ends. Losses remain those of the whole recording. Counters, which no format that
// is read has, are left out.
func Cut(line *profile.Timeline, spans []Span) *profile.Timeline {
	if len(spans) == 0 {
		spans = []Span{{}}
	}
	c := *line
	within := absolute(line.Start, spans)
	first, last := within[0].From, within[len(within)-1].To
	c.Start, c.End = max(line.Start, first), min(line.End, last)
	c.Start = min(c.Start, line.End)
	c.End = max(c.Start, c.End)
	p := *line.Profile
	if !p.Meta.Start.IsZero() {
		p.Meta.Start = p.Meta.Start.Add(time.Duration(c.Start - line.Start))
	}
	p.Meta.Duration = 0
	for _, s := range within {
		p.Meta.Duration += time.Duration(max(0, min(s.To, line.End)-max(s.From, line.Start)))
	}
	c.Profile = &p
	c.Events = &cutEvents{line.Events, within}
	c.Processes, c.Threads, c.Counters = slices.Clone(c.Processes), slices.Clone(c.Threads), nil
	for i := range c.Processes {
		of := &c.Processes[i]
		of.Names, of.Start, of.End = names(of.Names, c.Start, c.End), since(of.Start, c.Start), until(of.End, c.End)
	}
	for i := range c.Threads {
		of := &c.Threads[i]
		of.Names, of.Start, of.End = names(of.Names, c.Start, c.End), since(of.Start, c.Start), until(of.End, c.End)
	}
	return &c
}

// absolute returns spans as times. It does not overflow.
func absolute(start int64, spans []Span) []Span {
	at := func(t int64) int64 {
		if t == math.MinInt64 || t > 0 && start > math.MaxInt64-t {
			return cmp.Or(min(t, 0), math.MaxInt64)
		}
		return start + t
	}
	list := make([]Span, len(spans))
	for i, s := range spans {
		list[i] = Span{at(s.From), at(s.To)}
	}
	return list
}

// names returns the names from a time up to an end, with the one that holds at the time as the first.
func names(list []profile.Name, from, to int64) (kept []profile.Name) {
	for _, n := range list {
		switch {
		case n.At <= from:
			kept = []profile.Name{{At: max(n.At, from), Name: n.Name}}
		case n.At <= to || len(kept) == 0:
			kept = append(kept, n)
		}
	}
	return kept
}

// since returns the time of a start, or 0 if it is before the recording.
func since(at, start int64) int64 {
	if at <= start {
		return 0
	}
	return at
}

// until returns the time of an end, or 0 if it is after the recording.
func until(at, end int64) int64 {
	if at > end {
		return 0
	}
	return at
}

// within reports whether a time is in one of the spans.
func within(spans []Span, at int64) bool {
	i, found := slices.BinarySearchFunc(spans, at, func(s Span, at int64) int { return cmp.Compare(s.From, at) })
	return found || i > 0 && at < spans[i-1].To
}

// cutEvents are the events within spans.
type cutEvents struct {
	profile.Events
	spans []Span
}

// OnCPU implements [profile.Events].
func (e *cutEvents) OnCPU(t profile.ThreadID) iter.Seq2[profile.OnCPU, error] {
	return only(e.Events.OnCPU(t), func(s *profile.OnCPU) bool { return within(e.spans, s.Time) })
}

// BlockIO implements [profile.Events].
func (e *cutEvents) BlockIO(t profile.ThreadID) iter.Seq2[profile.BlockIO, error] {
	return only(e.Events.BlockIO(t), func(r *profile.BlockIO) bool { return within(e.spans, r.Completed) })
}

// Faults implements [profile.Events].
func (e *cutEvents) Faults(t profile.ThreadID) iter.Seq2[profile.Fault, error] {
	return only(e.Events.Faults(t), func(f *profile.Fault) bool { return within(e.spans, f.Time) })
}

// Markers implements [profile.Events].
func (e *cutEvents) Markers(t profile.ThreadID) iter.Seq2[profile.Marker, error] {
	return only(e.Events.Markers(t), func(m *profile.Marker) bool { return within(e.spans, m.Time) })
}

// OffCPU implements [profile.Events].
func (e *cutEvents) OffCPU(t profile.ThreadID) iter.Seq2[profile.OffCPU, error] {
	return func(yield func(profile.OffCPU, error) bool) {
		for w, err := range e.Events.OffCPU(t) {
			if err != nil {
				yield(w, err)
				return
			}
			for _, part := range e.parts(w) {
				if !yield(part, nil) {
					return
				}
			}
		}
	}
}

// parts returns the parts of a period off the CPU within the spans. Only the last one of the period has
// the waker.
func (e *cutEvents) parts(w profile.OffCPU) (list []profile.OffCPU) {
	end := w.Start + w.Duration
	if w.Duration <= 0 {
		if within(e.spans, w.Start) {
			list = append(list, w)
		}
		return list
	}
	woken := end - w.Runnable
	for _, s := range e.spans {
		from, to := max(w.Start, s.From), min(end, s.To)
		if from >= to {
			continue
		}
		part := w
		part.Start, part.Duration, part.Runnable = from, to-from, max(0, to-max(from, woken))
		if to < end {
			part.Waker, part.WakerStack = profile.Task{}, 0
		}
		list = append(list, part)
	}
	return list
}

// only yields the events that keep selects, which may change them.
func only[E any](seq iter.Seq2[E, error], keep func(*E) bool) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for event, err := range seq {
			if err == nil && !keep(&event) {
				continue
			}
			if !yield(event, err) {
				return
			}
		}
	}
}
