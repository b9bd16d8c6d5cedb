package session

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/trigger"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	recordings "fulgur/internal/profile/recording"
	"fulgur/internal/profile/report"
	"fulgur/internal/profile/timeline"
)

// write writes the file of an incident from the parts of the recording up to end, in the writer's goroutine. A file
// that cannot be written does not end the recording.
func (f *flight) write(ctx context.Context, i *incident, parts []*heldPart, meta profile.Meta, end int64) error {
	w, err := f.window(ctx, i, parts, meta, end)
	if err == nil {
		var path string
		if path, err = f.out.write(i.firings[0], w); err == nil {
			f.report(path, i, w)
		}
	}
	if err != nil {
		f.failed++
		f.run.options.warn("write the recording of " + i.firings[0].Trigger + ": " + plain.Error(err))
	}
	return f.known.Trim()
}

// report prints a line about a file.
func (f *flight) report(path string, i *incident, w Window) {
	if f.run.options.Quiet {
		return
	}
	begin := ""
	if f.run.options.Progress {
		begin = "\r\x1b[K" // overwrites the progress line
	}
	first := i.firings[0]
	what := first.Trigger
	if first.Value != "" {
		what += " (" + first.Value + ")"
	}
	if more := len(i.firings) - 1; more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	before := time.Duration(first.At - w.Timeline.Start)
	fmt.Fprintf(f.run.options.Stderr, "%s%s: %s, with %.1f s before and %.1f s after\n", begin,
		plain.Terminal(path), plain.Terminal(what), before.Seconds(), (time.Duration(w.Timeline.End-w.Timeline.Start) - before).Seconds())
}

// window returns the recording of an incident.
func (f *flight) window(ctx context.Context, i *incident, parts []*heldPart, meta profile.Meta, end int64) (Window, error) {
	fired := i.firings[0]
	start := min(fired.At-int64(f.options.Keep), fired.Begin)
	for len(parts) > 0 && parts[0].end < start {
		parts = parts[1:]
	}
	if len(parts) == 0 {
		return Window{}, errNoParts
	}
	start = max(start, parts[0].start)
	end = max(end, start+1)
	meta.Start = wallClock(start)
	meta.Duration = time.Duration(end - start)
	var losses profile.Losses
	for _, p := range parts {
		losses = losses.Plus(p.losses)
	}
	b := newBuild(f.run.subject, parts[0].recorder.store, meta, losses, f.run.judge.Leaves)
	missing := naming.Lacking{}
	joined := make([]timeline.Part, len(parts))
	for n, p := range parts {
		names := naming.New(p.recorder.store, f.run.finder, f.run.options.symbolize())
		names.Cache, names.Later, names.Snapshots = f.known, f.run.options.NoSymbols, p.snapshots
		names.Symbolize(ctx)
		f.warnings.warn(names.Warnings())
		for _, to := range []naming.Lacking{missing, f.written.missing} {
			to.Add(names, maps.All(p.recorder.store.Samples))
		}
		f.written.gaps.Add(names, maps.All(p.recorder.store.Samples))
		b.add(p.recorder.store, p.lost, names, p.recorder)
		joined[n] = timeline.Part{Recorder: p.recorder.Recorder, Stack: p.recorder.stack}
	}
	built := b.profile()
	built.Meta.Stripped = missing.Stripped(f.run.finder)
	line := timeline.Join(tablesOf(built), start, end, joined)
	describeParts(line, built, parts)
	counters := line.Counters
	// Sum needs the values and the samples' ends, which the tables lack.
	tables := line.Profile
	line.Profile = built
	line = recordings.Cut(line, []recordings.Span{{From: 0, To: end - start}})
	p, err := recordings.Sum(line)
	if err != nil {
		return Window{}, err
	}
	line.Profile, line.Counters = tables, counters
	line.Profile.Meta = p.Meta
	addTriggers(line, i.firings)
	p.Meta.Triggers = line.Profile.Meta.Triggers
	value := f.run.subject.Shown()
	if f.options.Value == "" {
		value = report.First(p, value)
	}
	f.written.add(uint64(p.Total(0)), p.Losses)
	return Window{Number: f.out.written + 1, Profile: p, Timeline: line, Value: value}, nil
}

// wallClock returns the time at a time in ns of CLOCK_MONOTONIC.
func wallClock(at int64) time.Time {
	now := time.Now()
	return now.Add(-time.Duration(int64(monotonic.At(now)) - at))
}

// describeParts completes the timeline of p, which parts have recorded.
func describeParts(line *profile.Timeline, p *profile.Profile, parts []*heldPart) {
	whole := *parts[0].recorder
	whole.reasons, whole.writeback = map[profile.StackID]string{}, map[profile.StackID]bool{}
	owned := map[int][]stacks.Ownership{}
	for _, part := range parts {
		maps.Copy(whole.reasons, part.recorder.reasons)
		maps.Copy(whole.writeback, part.recorder.writeback)
		for pid, list := range part.recorder.store.Owned {
			owned[pid] = append(owned[pid], list...)
		}
	}
	whole.describe(line, p, owned)
}

// addTriggers adds markers of firings to a timeline.
func addTriggers(line *profile.Timeline, firings []trigger.Firing) {
	typ := profile.MarkerTypeID(len(line.MarkerTypes))
	line.MarkerTypes = append(slices.Clone(line.MarkerTypes), profile.MarkerType{
		Name: profile.TriggerMarker, Event: profile.TriggerMarker, Fields: []string{"trigger", "value"},
	})
	if len(line.Threads) == 0 {
		line.Processes = append(line.Processes, profile.Process{PID: firings[0].PID})
		line.Threads = append(line.Threads, profile.Thread{TID: firings[0].TID})
	}
	added := map[profile.ThreadID][]profile.Marker{}
	for _, f := range firings {
		at := max(line.Start, min(f.At, line.End))
		line.Profile.Meta.Triggers = append(line.Profile.Meta.Triggers, profile.Trigger{After: time.Duration(at - line.Start), Name: f.Trigger, Value: f.Value})
		id := threadOf(line, f)
		added[id] = append(added[id], profile.Marker{Time: at, Type: typ, Values: []string{f.Trigger, f.Value}})
	}
	line.Events = withTriggers{line.Events, added}
}

// threadOf returns the thread to show a firing on: its own one, or else the first one.
func threadOf(line *profile.Timeline, f trigger.Firing) (found profile.ThreadID) {
	for id, t := range line.Threads {
		if t.TID == f.TID && line.Processes[t.Process].PID == f.PID {
			found = profile.ThreadID(id)
		}
	}
	return found
}

// withTriggers are events with further markers.
type withTriggers struct {
	profile.Events
	added map[profile.ThreadID][]profile.Marker
}

// Markers implements [profile.Events].
func (w withTriggers) Markers(t profile.ThreadID) iter.Seq2[profile.Marker, error] {
	added := slices.SortedStableFunc(slices.Values(w.added[t]), func(a, b profile.Marker) int { return int(a.Time - b.Time) })
	return func(yield func(profile.Marker, error) bool) {
		left := added
		for m, err := range w.Events.Markers(t) {
			for err == nil && len(left) > 0 && left[0].Time <= m.Time {
				if !yield(left[0], nil) {
					return
				}
				left = left[1:]
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
		for _, m := range left {
			if !yield(m, nil) {
				return
			}
		}
	}
}
