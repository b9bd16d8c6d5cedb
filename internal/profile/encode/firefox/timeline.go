package firefox

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"fulgur/internal/profile"
)

// requestWindow bounds how far the block device requests of a thread may complete out of
// order: the number of completions between two requests that complete in reverse order of
// submission.
const requestWindow = 4096

// recording is a timeline that is being written.
type recording struct {
	t      *profile.Timeline
	tables *tables

	pids    []string  // by process, unique
	tids    []any     // by thread, unique
	threads [][]int   // by process, its visible threads, main thread first
	heads   []trackID // by process, its main track
	tracks  []*track
	notes   map[string]int32 // by reason, the frame on top of off-CPU stacks
}

// trackID is the index of a track plus one; 0 means none.
type trackID int

func writeTimeline(j *jsonWriter, t *profile.Timeline, o Options) error {
	r := &recording{
		t: t, tables: newTables(t.Profile, o),
		heads: make([]trackID, len(t.Processes)), notes: map[string]int32{},
	}
	r.number()
	r.choose()
	for p := range t.Processes {
		for i, id := range r.threads[p] {
			r.tracks = append(r.tracks, r.track(profile.ThreadID(id), i == 0))
			if i == 0 {
				r.heads[p] = trackID(len(r.tracks))
			}
		}
		r.tracks = append(r.tracks, r.pseudo(profile.ProcessID(p))...)
	}
	d := description{
		p: t.Profile, interval: cmp.Or(t.Interval, interval(t.Profile.Meta)), end: t.End - t.Start, monotonic: t.Start,
		types: t.MarkerTypes,
	}
	return write(j, r.tables, d, r.tracks, r.counters())
}

// number assigns IDs to processes and threads: their own, made unique if reused.
func (r *recording) number() {
	seen := map[int]int{}
	for _, p := range r.t.Processes {
		r.pids = append(r.pids, again(p.PID, seen))
	}
	clear(seen)
	for _, t := range r.t.Threads {
		if seen[t.TID] > 0 {
			r.tids = append(r.tids, again(t.TID, seen))
			continue
		}
		seen[t.TID]++
		r.tids = append(r.tids, t.TID)
	}
}

// again returns n, followed by the number of earlier occurrences, if any.
func again(n int, seen map[int]int) string {
	name := strconv.Itoa(n)
	if seen[n] > 0 {
		name += "." + strconv.Itoa(seen[n])
	}
	seen[n]++
	return name
}

// choose selects the threads that have events, and at least one of processes that have
// counters.
func (r *recording) choose() {
	all := make([][]int, len(r.t.Processes))
	for i, t := range r.t.Threads {
		all[t.Process] = append(all[t.Process], i)
	}
	counted := make([]bool, len(r.t.Processes))
	for _, c := range r.t.Counters {
		counted[c.Process] = true
	}
	r.threads = make([][]int, len(all))
	for p, threads := range all {
		// The main thread has the process's ID.
		slices.SortStableFunc(threads, func(a, b int) int { return cmp.Compare(r.rank(p, a), r.rank(p, b)) })
		var shown []int
		for _, id := range threads {
			if r.hasEvents(profile.ThreadID(id)) {
				shown = append(shown, id)
			}
		}
		if len(threads) > 0 && (len(shown) > 0 || counted[p]) && !slices.Contains(shown, threads[0]) {
			shown = slices.Insert(shown, 0, threads[0])
		}
		r.threads[p] = shown
	}
}

// rank sorts the main thread of a process before the others.
func (r *recording) rank(process, thread int) int {
	if r.t.Threads[thread].TID == r.t.Processes[process].PID {
		return 0
	}
	return 1
}

func (r *recording) hasEvents(id profile.ThreadID) bool {
	e := r.t.Events
	return !isEmpty(e.OnCPU(id)) || !isEmpty(e.OffCPU(id)) || !isEmpty(e.BlockIO(id)) || !isEmpty(e.Faults(id)) || !isEmpty(e.Markers(id))
}

// since returns a time relative to the start of the recording, negative if unknown.
func (r *recording) since(at int64) int64 {
	if at == 0 {
		return -1
	}
	return at - r.t.Start
}

// track describes a thread.
func (r *recording) track(id profile.ThreadID, main bool) *track {
	t := r.t.Threads[id]
	p := r.t.Processes[t.Process]
	weightType := weightTime
	if r.countsSamples() {
		weightType = weightSamples
	}
	return &track{
		name: profile.LastName(t.Names), processName: profile.LastName(p.Names),
		pid: r.pids[t.Process], tid: r.tids[id], main: main,
		start: max(0, r.since(t.Start)), end: r.since(t.End),
		processStart: max(0, r.since(p.Start)), processEnd: r.since(p.End),
		points: r.points(id), row: r.row, weightType: weightType, cpu: true, value: -1,
		markers: r.markers(id),
	}
}

// countsSamples reports whether the samples of running threads are not known to be of CPU
// time: other profilers also sample threads that wait.
func (r *recording) countsSamples() bool {
	return r.t.Sampled == profile.ValueType{Type: "samples", Unit: "count"}
}

// points yields the on-CPU and off-CPU samples of a thread.
func (r *recording) points(id profile.ThreadID) iter.Seq2[point, error] {
	on := transform(r.t.Events.OnCPU(id), func(e profile.OnCPU) point {
		p := point{time: e.Time - r.t.Start, stack: e.Stack, weight: e.Weight, cpu: e.Weight}
		if r.countsSamples() {
			p.weight = e.Amount
		}
		return p
	})
	all := merge(func(p point) int64 { return p.time }, r.offPoints(id), on)
	return r.used(monotonic(all))
}

// offPoints yields two samples for each period off the CPU: one at its start, which
// weighs at most as much as an on-CPU sample, and one at its end with the rest. Their cpu
// is negative.
func (r *recording) offPoints(id profile.ThreadID) iter.Seq2[point, error] {
	return func(yield func(point, error) bool) {
		for e, err := range r.t.Events.OffCPU(id) {
			if err != nil {
				yield(point{}, err)
				return
			}
			first := e.Duration
			if r.t.Interval > 0 {
				first = min(first, r.t.Interval)
			}
			begin := point{time: e.Start - r.t.Start, stack: e.Stack, off: true, reason: r.reason(e), weight: first, cpu: switchedOut}
			rest := begin
			rest.time, rest.weight, rest.cpu = begin.time+e.Duration, e.Duration-first, asleep
			if !yield(begin, nil) || !yield(rest, nil) {
				return
			}
		}
	}
}

// row returns the row of a point's stack, with a note on top if it is off the CPU.
func (r *recording) row(p point) int32 {
	row := r.tables.stack(p.stack)
	if !p.off {
		return row
	}
	note, ok := r.notes[p.reason]
	if !ok {
		note = r.tables.label("[off-CPU: "+p.reason+"]", categoryIdle, r.tables.subcategory(categoryIdle, p.reason))
		r.notes[p.reason] = note
	}
	return r.tables.labeled(stack{note, row})
}

// Placeholders for the CPU usage in off-CPU points, until [recording.used] computes it.
const (
	switchedOut = -1 // it ran until now
	asleep      = -2 // it has not run since the previous point
)

// used yields points with the CPU time since the previous one. If all periods off the CPU
// are known, that is the remaining time. Otherwise a thread ran for at most the weight of its
// sample or, if it begins to wait without a sample, for at most an interval, and never for
// longer than the elapsed time.
func (r *recording) used(seq iter.Seq2[point, error]) iter.Seq2[point, error] {
	return func(yield func(point, error) bool) {
		first, last := true, int64(0)
		for p, err := range seq {
			passed := p.time - last
			if first {
				first, passed = false, 0 // the first one is ignored
			}
			last = p.time
			switch {
			case p.cpu == asleep:
				p.cpu = 0
			case r.t.OffCPUWhole:
				p.cpu = passed
			case p.cpu == switchedOut:
				p.cpu = min(passed, r.t.Interval)
			default:
				p.cpu = min(p.cpu, passed)
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// reason returns why a thread is off the CPU.
func (r *recording) reason(e profile.OffCPU) string {
	// Threads may sleep in the same stack at other times.
	if e.State == profile.StateRunnable {
		return "preempted"
	}
	if reason := r.t.Reason(e); reason != "" {
		return reason
	}
	switch e.State {
	case profile.StateStopped:
		return "stopped"
	case profile.StateTraced:
		return "traced"
	case profile.StateUninterruptible:
		return "uninterruptible wait"
	}
	return "waiting"
}

// markers yields the events of a thread by start time.
func (r *recording) markers(id profile.ThreadID) iter.Seq2[marker, error] {
	e, tid := r.t.Events, r.tids[id]
	off := transform(e.OffCPU(id), func(e profile.OffCPU) marker {
		start := e.Start - r.t.Start
		return marker{kind: markerOffCPU, start: start, end: start + e.Duration, tid: tid, off: e, reason: r.reason(e)}
	})
	requests := transform(e.BlockIO(id), func(e profile.BlockIO) marker {
		return marker{kind: markerBlockIO, start: e.Queued - r.t.Start, end: e.Completed - r.t.Start, tid: tid, io: e}
	})
	faults := transform(e.Faults(id), func(e profile.Fault) marker {
		start := e.Time - r.t.Start
		return marker{kind: markerFault, start: start, end: start + e.Latency, tid: tid, fault: e}
	})
	hits := transform(r.unweighted(id), func(e profile.Marker) marker {
		m := marker{kind: markerHit, start: e.Time - r.t.Start, tid: tid, hit: e, of: &r.t.MarkerTypes[e.Type]}
		if m.end = m.start; m.of.Spans {
			m.end += e.Weight
		}
		return m
	})
	start := func(m marker) int64 { return m.start }
	return merge(start, r.renamed(id), longWaits(off), profile.Sorted(start, requestWindow, requests), faults, hits)
}

// unweighted yields the hits of a thread. Markers with a weight other than their duration are
// samples of pseudo-threads only.
func (r *recording) unweighted(id profile.ThreadID) iter.Seq2[profile.Marker, error] {
	return func(yield func(profile.Marker, error) bool) {
		for e, err := range r.t.Events.Markers(id) {
			if of := r.t.MarkerTypes[e.Type]; err == nil && of.Unit != "" && !of.Spans {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// shortestWait is the minimum duration off the CPU for a marker. All periods are samples.
const shortestWait = int64(time.Millisecond)

// longWaits yields the markers of at least [shortestWait].
func longWaits(seq iter.Seq2[marker, error]) iter.Seq2[marker, error] {
	return func(yield func(marker, error) bool) {
		for m, err := range seq {
			if err == nil && m.end-m.start < shortestWait {
				continue
			}
			if !yield(m, err) {
				return
			}
		}
	}
}

// renamed yields the name changes of a thread.
func (r *recording) renamed(id profile.ThreadID) iter.Seq2[marker, error] {
	names := r.t.Threads[id].Names
	return func(yield func(marker, error) bool) {
		for _, n := range names[min(1, len(names)):] {
			if !yield(marker{kind: markerName, start: n.At - r.t.Start, end: n.At - r.t.Start, renamed: n.Name}, nil) {
				return
			}
		}
	}
}

// pseudo returns pseudo-threads for further weights of a process's stacks: the bytes and
// latency of its block device requests, its page faults, and its hits of each event.
func (r *recording) pseudo(id profile.ProcessID) []*track {
	var tracks []*track
	add := func(suffix, name, weightType string, seqs []iter.Seq2[point, error]) {
		if len(seqs) == 0 {
			return
		}
		p := r.t.Processes[id]
		points := merge(func(p point) int64 { return p.time }, seqs...)
		tracks = append(tracks, &track{
			name: name, processName: profile.LastName(p.Names), pid: r.pids[id], tid: r.pids[id] + suffix, pseudo: true,
			start: max(0, r.since(p.Start)), end: r.since(p.End), processStart: max(0, r.since(p.Start)), processEnd: r.since(p.End),
			points: monotonic(points), row: r.tables.row, weightType: weightType, markers: nothing, value: -1,
		})
	}
	var bytes, latency, faults []iter.Seq2[point, error]
	hits := map[profile.ValueType][]iter.Seq2[point, error]{}
	for _, t := range r.threads[id] {
		requests := r.t.Events.BlockIO(profile.ThreadID(t))
		if !isEmpty(requests) {
			bytes = append(bytes, r.requests(requests, func(e profile.BlockIO) int64 { return int64(e.Bytes) }))
			latency = append(latency, r.requests(requests, func(e profile.BlockIO) int64 { return e.Completed - e.Queued }))
		}
		if all := r.t.Events.Faults(profile.ThreadID(t)); !isEmpty(all) {
			faults = append(faults, transform(all, func(e profile.Fault) point {
				return point{time: e.Time - r.t.Start, stack: e.Stack, weight: e.Count}
			}))
		}
		for value := range r.events(profile.ThreadID(t)) {
			hits[value] = append(hits[value], r.hits(profile.ThreadID(t), value))
		}
	}
	add("-block-io", "Block I/O, bytes", weightBytes, bytes)
	add("-block-io-time", "Block I/O, latency", weightTime, latency)
	add("-faults", "Page faults", weightSamples, faults)
	for _, v := range slices.SortedFunc(maps.Keys(hits), func(a, b profile.ValueType) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Unit, b.Unit))
	}) {
		add("-"+v.Type, v.Type, weightOf(v.Unit), hits[v])
	}
	return tracks
}

// events returns the values of the events that a thread hit.
func (r *recording) events(id profile.ThreadID) map[profile.ValueType]bool {
	found := map[profile.ValueType]bool{}
	for e, err := range r.t.Events.Markers(id) {
		if err != nil {
			break // writing the markers fails, too
		}
		found[r.t.MarkerTypes[e.Type].Value()] = true
	}
	return found
}

// hits yields a sample for each marker of a value.
func (r *recording) hits(id profile.ThreadID, value profile.ValueType) iter.Seq2[point, error] {
	return func(yield func(point, error) bool) {
		for e, err := range r.t.Events.Markers(id) {
			if err != nil {
				yield(point{}, err)
				return
			}
			typ := r.t.MarkerTypes[e.Type]
			if typ.Value() == value && !yield(point{time: e.Time - r.t.Start, stack: e.Stack, weight: e.Amount(typ)}, nil) {
				return
			}
		}
	}
}

// requests yields a weighted sample for each request.
func (r *recording) requests(seq iter.Seq2[profile.BlockIO, error], weight func(profile.BlockIO) int64) iter.Seq2[point, error] {
	return transform(seq, func(e profile.BlockIO) point {
		return point{time: e.Completed - r.t.Start, stack: e.Stack, weight: weight(e)}
	})
}

// nothing yields no markers.
func nothing(func(marker, error) bool) {}

// counters returns the counters of processes with a visible thread.
func (r *recording) counters() []counter {
	var all []counter
	for i := range r.t.Counters {
		c := &r.t.Counters[i]
		if head := r.heads[c.Process]; head != 0 {
			all = append(all, counter{c, r.pids[c.Process], int(head) - 1, r.t.Start})
		}
	}
	return all
}
