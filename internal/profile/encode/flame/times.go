package flame

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// The unit of times on the page is the sampling interval, from minStep to maxStep. From
// maxTimes entries on it is coarser, to bound the page. It is also coarser from that many
// divided by spanShare spans on, to bound the memory.
const (
	minStep   = time.Millisecond
	maxStep   = 20 * time.Millisecond
	maxTimes  = 4 << 20
	spanShare = 4
	// rowSize is the approximate memory of a sample besides its values, in bytes. Samples
	// beyond [profile.MaxTables] have the stack [truncated].
	rowSize = 256
)

// eventKind separates the samples of a page with times: each has one unit of weight.
type eventKind uint16

const (
	onCPU eventKind = iota
	offCPU
	blockIO
	fault
	marker // of the first event; the other events' follow
)

// timedProfile is a recording: the time that threads spend on and off the CPU, their disk
// requests and page faults.
type timedProfile struct {
	*profile.Profile
	kinds   []eventKind        // by sample
	threads []profile.ThreadID // by sample
	line    *profile.Timeline
	// step is the unit of times in nanoseconds, and steps the length of the recording.
	step  int64
	steps int
	// spans holds the weights of samples by time. At room spans, shrink is called.
	spans []timeSpan
	// limit is the maximum number of entries if there are several steps.
	limit, room int
}

// timedValues are the values of a page with times: the number of events, the time on and
// off the CPU and their sum, and what fulgur record has of requests and page faults. A page
// has the values of kinds that occur.
var timedValues = [...]profile.ValueType{
	valueEvents: {Type: "samples", Unit: "count"},
	valueCPU:    {Type: "cpu", Unit: "nanoseconds"},
	valueOffCPU: profile.OffCPUTime,
	valueWall:   {Type: "wall", Unit: "nanoseconds"},
	valueBytes:  {Type: "block-io", Unit: "bytes"},
	valueIOTime: {Type: "block-io-time", Unit: "nanoseconds"},
	valueFaults: {Type: "faults", Unit: "count"},
}

// Indexes of timedValues. The hits of each event follow.
const (
	valueEvents = iota
	valueCPU
	valueOffCPU
	valueWall
	valueBytes
	valueIOTime
	valueFaults
	valueHits
)

// valuesOf returns the values of a kind of events, besides the first.
func valuesOf(k eventKind) []int {
	switch k {
	case onCPU:
		return []int{valueCPU}
	case offCPU:
		return []int{valueOffCPU, valueWall}
	case blockIO:
		return []int{valueBytes, valueIOTime}
	case fault:
		return []int{valueFaults}
	}
	return []int{valueHits + int(k-marker)}
}

// timeSpan is a weight of a sample, by its index, spread evenly over a part of the recording.
// The weight is time in nanoseconds, the bytes of requests, or the number of page faults or
// hits. Most of a recording of the machine is waiting, so spans take less memory than entries.
type timeSpan struct {
	from, length int64 // in nanoseconds, since the start
	weight       int64
	sample       uint32
}

// timeEntry is the weight of a sample, by its index, during a step of the recording.
type timeEntry struct {
	sample, step uint32
	weight       int64
}

// summed returns entries sorted by sample and step, one for each of these. It overwrites
// them.
func summed(entries []timeEntry) []timeEntry {
	slices.SortFunc(entries, func(a, b timeEntry) int {
		return cmp.Or(cmp.Compare(a.sample, b.sample), cmp.Compare(a.step, b.step))
	})
	out := entries[:0]
	for _, e := range entries {
		if n := len(out); n > 0 && out[n-1].sample == e.sample && out[n-1].step == e.step {
			out[n-1].weight += e.weight
			continue
		}
		out = append(out, e)
	}
	return out
}

// timeRow identifies a sample.
type timeRow struct {
	stack  profile.StackID
	task   profile.Task
	thread profile.ThreadID
	cpu    int
	kind   eventKind
}

// newTimedProfile reads the events of a recording. Threads are separate if perThread is
// set. Waits have their reason as the last frame, requests and page faults their file.
func newTimedProfile(line *profile.Timeline, perThread bool) (*timedProfile, error) {
	b := newTimedBuilder(line)
	for i := range line.Threads {
		if err := b.addThread(profile.ThreadID(i), perThread); err != nil {
			return nil, err
		}
	}
	b.keepValues(b.occur)
	b.bound()
	return b.timedProfile, nil
}

// newTimedBuilder returns a builder of the events of a recording.
func newTimedBuilder(line *profile.Timeline) *timedBuilder {
	p := *line.Profile
	p.Functions, p.Frames, p.Stacks = slices.Clone(p.Functions), slices.Clone(p.Frames), slices.Clone(p.Stacks)
	p.Tasks, p.Samples = nil, nil
	p.ValueTypes = slices.Clone(timedValues[:])
	if line.Sampled != (profile.ValueType{}) {
		p.ValueTypes[valueCPU] = line.Sampled
	}
	hits, places := map[profile.ValueType]eventKind{}, map[profile.ValueType]int{}
	for _, m := range line.MarkerTypes {
		v := m.Value()
		places[v]++
		if _, ok := hits[v]; !ok {
			hits[v] = marker + eventKind(len(hits))
			p.ValueTypes = append(p.ValueTypes, v)
		}
	}
	step := max(int64(minStep), min(line.Interval, int64(maxStep)))
	if line.Interval == 0 {
		step = int64(maxStep)
	}
	step = max(step, line.Resolution)
	b := &timedBuilder{
		timedProfile: &timedProfile{Profile: &p, line: line, step: step, limit: maxTimes, room: maxTimes / spanShare},
		rows:         map[timeRow]uint32{},
		tasks:        map[profile.Task]profile.TaskID{},
		hits:         hits,
		places:       places,
		occur:        make([]bool, int(marker)+len(hits)),
		depths:       depthsOf(&p),
		left:         profile.MaxFrames,
		most:         profile.MaxTables / (rowSize + 8*len(p.ValueTypes)),
		notes:        notes{p: &p, line: line, frames: map[string]profile.FrameID{}, stacks: map[profile.Stack]profile.StackID{}},
	}
	b.steps = b.stepsOf(line.End - line.Start)
	for b.steps > maxTimes {
		b.coarsen()
	}
	return b
}

// timedBuilder builds a [timedProfile].
type timedBuilder struct {
	*timedProfile
	rows   map[timeRow]uint32 // indexes of samples
	tasks  map[profile.Task]profile.TaskID
	hits   map[profile.ValueType]eventKind // kinds of events with markers
	places map[profile.ValueType]int       // number of places of each of these events
	occur  []bool                          // kinds of events that occur
	notes  notes

	depths []uint16 // of stacks
	left   int64    // number of frames that further samples may have
	most   int      // number of samples
}

// depthsOf returns the depths of the stacks of p.
func depthsOf(p *profile.Profile) []uint16 {
	depths := make([]uint16, len(p.Stacks))
	for id := 1; id < len(depths); id++ { // a stack's parent has a lower identifier
		depths[id] = depths[p.Stacks[id].Parent] + 1
	}
	return depths
}

// addThread adds the events of a thread.
func (b *timedBuilder) addThread(id profile.ThreadID, perThread bool) error {
	task := taskAt(b.line, id, perThread)
	var last int64
	for e, err := range b.line.Events.OnCPU(id) {
		if err != nil {
			return err
		}
		r := timeRow{e.Stack, task(e.Time), id, -1, onCPU}
		if b.Meta.PerCPU {
			r.cpu = e.CPU
		}
		from, amount := e.Time, e.Weight
		if b.line.Sampled != (profile.ValueType{}) {
			amount = e.Amount
			// A sample can stand for several intervals in which nothing else happened.
			if e.Weight > 2*b.line.Interval {
				from = max(e.Time-e.Weight, last)
			}
		}
		b.count(r, from, e.Time-from+1, e.Weight, amount)
		last = e.Time
	}
	for e, err := range b.line.Events.OffCPU(id) {
		if err != nil {
			return err
		}
		b.count(timeRow{b.notes.wait(e), task(e.Start), id, -1, offCPU}, e.Start, e.Duration, e.Duration, e.Duration, e.Duration)
	}
	for e, err := range b.line.Events.BlockIO(id) {
		if err != nil {
			return err
		}
		bytes := int64(min(e.Bytes, math.MaxInt32))
		b.count(timeRow{b.notes.request(e), task(e.Queued), id, -1, blockIO}, e.Queued, e.Completed-e.Queued, max(bytes, 1), bytes, e.Completed-e.Queued)
	}
	for e, err := range b.line.Events.Faults(id) {
		if err != nil {
			return err
		}
		b.count(timeRow{b.notes.fault(e), task(e.Time), id, -1, fault}, e.Time, 1, e.Count, e.Count)
	}
	for e, err := range b.line.Events.Markers(id) {
		if err != nil {
			return err
		}
		stack, hit := e.Stack, b.line.MarkerTypes[e.Type]
		if b.places[hit.Value()] > 1 {
			stack = b.notes.on(stack, hit.Name)
		}
		amount := e.Amount(hit)
		b.count(timeRow{stack, task(e.Time), id, -1, b.hits[hit.Value()]}, e.Time, 1, max(amount, -amount, 1), amount)
	}
	return nil
}

// count counts an event: weight at a time and for a duration, and the values of its kind.
func (b *timedBuilder) count(r timeRow, at, duration, weight int64, values ...int64) {
	s := b.row(r)
	of := b.Samples[s].Values
	of[valueEvents]++
	for i, v := range values {
		of[valuesOf(r.kind)[i]] += v
	}
	b.add(s, at-b.line.Start, duration, weight)
}

// row returns the index of the sample of r.
func (b *timedBuilder) row(r timeRow) uint32 {
	id, ok := b.rows[r]
	if !ok && !b.hasRoom(r) {
		b.Losses[profile.LossTooMany]++
		r = timeRow{b.notes.truncated(), profile.Task{}, r.thread, -1, r.kind}
		if id, ok = b.rows[r]; !ok && len(b.Samples) >= 2*b.most {
			r.thread = 0
			id, ok = b.rows[r]
		}
	}
	if !ok {
		task := profile.Intern(&b.Tasks, b.tasks, r.task)
		id = uint32(len(b.Samples))
		b.rows[r] = id
		b.Samples = append(b.Samples, profile.Sample{Stack: r.stack, Task: task, CPU: r.cpu, Values: make([]int64, len(b.ValueTypes))})
		b.kinds = append(b.kinds, r.kind)
		b.threads = append(b.threads, r.thread)
		b.occur[r.kind] = true
	}
	return id
}

// hasRoom reports whether there is room for the sample of r, and takes it.
func (b *timedBuilder) hasRoom(r timeRow) bool {
	depth, at := int64(0), r.stack
	for ; int(at) >= len(b.depths); at = b.Stacks[at].Parent { // notes
		depth++
	}
	depth += int64(b.depths[at])
	if len(b.Samples) >= b.most || depth > b.left {
		return false
	}
	b.left -= depth
	return true
}

// keepValues leaves out the values of kinds of events that do not occur, but not CPU time,
// unless there are other weights. On the CPU, all time is also wall time.
func (t *timedProfile) keepValues(kinds []bool) {
	var keep []int
	if t.line.Sampled != timedValues[valueEvents] || !kinds[onCPU] { // else it would be there twice
		keep = append(keep, valueEvents)
	}
	weighted := slices.ContainsFunc(t.line.MarkerTypes, func(m profile.MarkerType) bool { return m.Unit != "" && !m.Spans })
	for kind, occurs := range kinds {
		if occurs || eventKind(kind) == onCPU && !weighted {
			keep = append(keep, valuesOf(eventKind(kind))...)
		}
	}
	p := t.Profile
	all := p.ValueTypes
	p.ValueTypes = nil
	for _, v := range keep {
		p.ValueTypes = append(p.ValueTypes, all[v])
	}
	for i := range p.Samples {
		s := &p.Samples[i]
		if t.kinds[i] == onCPU {
			s.Values[valueWall] = s.Values[valueCPU]
		}
		for k, v := range keep {
			s.Values[k] = s.Values[v] // keep ascends
		}
		s.Values = s.Values[:len(keep)]
	}
}

// stepsOf returns the number of steps in a duration.
func (t *timedProfile) stepsOf(duration int64) int { return int(max(0, duration)/t.step) + 1 }

// add adds weight to a sample, evenly from a time of the recording on.
func (t *timedProfile) add(sample uint32, from, duration, weight int64) {
	end := min(from+max(duration, 1), int64(t.steps)*t.step)
	from = max(0, min(from, end-1))
	t.spans = append(t.spans, timeSpan{from, max(end-from, 1), weight, sample})
	if len(t.spans) >= t.room {
		t.shrink()
	}
}

// shrink adds up the spans within a step, and then makes the unit of times coarser until
// half of the room is free, or until there are two spans for each sample: fewer would tell
// nothing of the time.
func (t *timedProfile) shrink() {
	t.merge()
	samples := 0
	for i, s := range t.spans {
		if i == 0 || s.sample != t.spans[i-1].sample {
			samples++
		}
	}
	for len(t.spans) > max(t.limit/spanShare/2, 2*samples) && t.steps > 1 {
		t.coarsen()
	}
	t.room = max(t.limit/spanShare, 2*len(t.spans))
}

// bound makes the unit of times coarser until there are at most limit entries.
func (t *timedProfile) bound() {
	t.merge()
	for t.steps > 1 {
		entries := 0
		for _, s := range t.spans {
			entries += int((s.from+s.length-1)/t.step-s.from/t.step) + 1
		}
		if entries <= t.limit {
			return
		}
		t.coarsen()
	}
}

// coarsen doubles the unit of times.
func (t *timedProfile) coarsen() {
	t.step *= 2
	t.steps = (t.steps + 1) / 2
	t.merge()
}

// merge adds up the spans of a sample that lie within the same step, and sorts the spans by
// sample and time.
func (t *timedProfile) merge() {
	for i := range t.spans {
		s := &t.spans[i]
		if first := s.from / t.step; first == (s.from+s.length-1)/t.step {
			s.from, s.length = first*t.step, t.step
		}
	}
	slices.SortFunc(t.spans, func(a, b timeSpan) int {
		return cmp.Or(cmp.Compare(a.sample, b.sample), cmp.Compare(a.from, b.from), cmp.Compare(a.length, b.length))
	})
	out := t.spans[:0]
	for _, s := range t.spans {
		if n := len(out); n > 0 && out[n-1].sample == s.sample && out[n-1].from == s.from && out[n-1].length == s.length {
			out[n-1].weight += s.weight
			continue
		}
		out = append(out, s)
	}
	t.spans = out
}

// entries yields the weights above 0 of merged spans by sample and step.
func (t *timedProfile) entries(yield func(timeEntry) bool) {
	var of []timeEntry // of a sample
	for i, s := range t.spans {
		of = t.spread(of, s)
		if i+1 < len(t.spans) && t.spans[i+1].sample == s.sample {
			continue
		}
		for _, e := range summed(of) {
			if e.weight > 0 && !yield(e) {
				return
			}
		}
		of = of[:0]
	}
}

// spread appends a span's entries.
func (t *timedProfile) spread(to []timeEntry, s timeSpan) []timeEntry {
	var done int64
	for at, end := s.from, s.from+s.length; at < end; {
		next := min((at/t.step+1)*t.step, end)
		share := s.weight
		if next < end {
			share = int64(float64(s.weight) * (float64(next-s.from) / float64(s.length)))
		}
		to = append(to, timeEntry{s.sample, uint32(at / t.step), share - done})
		done, at = share, next
	}
	return to
}

// taskAt returns a function that returns a thread's task at a time, for times in
// ascending order.
func taskAt(line *profile.Timeline, id profile.ThreadID, perThread bool) func(at int64) profile.Task {
	thread := line.Threads[id]
	names := thread.Names
	if len(names) == 0 {
		names = line.Processes[thread.Process].Names
	}
	return func(at int64) profile.Task {
		task := profile.Task{PID: line.Processes[thread.Process].PID}
		if perThread {
			task.TID = thread.TID
		}
		if i, _ := slices.BinarySearchFunc(names, at+1, func(n profile.Name, at int64) int { return cmp.Compare(n.At, at) }); i > 0 {
			task.Comm = names[i-1].Name
		} else if len(names) > 0 {
			task.Comm = names[0].Name
		}
		return task
	}
}

// notes puts notes on stacks: reasons of waits, and the files of requests and page faults.
type notes struct {
	p      *profile.Profile
	line   *profile.Timeline
	frames map[string]profile.FrameID
	stacks map[profile.Stack]profile.StackID
}

// wait returns the stack of a wait with its reason.
func (n *notes) wait(e profile.OffCPU) profile.StackID {
	reason := n.line.Reason(e)
	switch {
	case e.State == profile.StateRunnable:
		reason = "preempted"
	case reason == "":
		reason = "off-cpu"
	}
	return n.on(e.Stack, reason)
}

// request returns the stack of a request to a block device with its file and operation.
func (n *notes) request(e profile.BlockIO) profile.StackID {
	stack := e.Stack
	if e.File != "" {
		stack = n.on(stack, e.File)
	}
	return n.on(stack, fmt.Sprintf("%s %v%v", e.Device, e.Op, e.Flags))
}

// fault returns the stack of a page fault with the file of the page.
func (n *notes) fault(e profile.Fault) profile.StackID {
	return n.on(e.Stack, cmp.Or(e.File, "memory without a file"))
}

// truncated returns the stack that replaces stacks without room.
func (n *notes) truncated() profile.StackID {
	return n.on(0, strings.Trim(profile.Truncated, "[]"))
}

// on returns a stack with a note.
func (n *notes) on(stack profile.StackID, text string) profile.StackID {
	frame, ok := n.frames[text]
	if !ok {
		n.p.Functions = append(n.p.Functions, profile.Function{Name: "[" + text + "]"})
		n.p.Frames = append(n.p.Frames, profile.Frame{Function: profile.FunctionID(len(n.p.Functions) - 1), Kind: profile.KindMarker})
		frame = profile.FrameID(len(n.p.Frames) - 1)
		n.frames[text] = frame
	}
	at := profile.Stack{Parent: stack, Frame: frame}
	s, ok := n.stacks[at]
	if !ok {
		n.p.Stacks = append(n.p.Stacks, at)
		s = profile.StackID(len(n.p.Stacks) - 1)
		n.stacks[at] = s
	}
	return s
}

// timesTable is the table of times of rows of samples.
type timesTable struct {
	header  times
	counts  []int // of each row's entries
	rows    []sampleRow
	entries iter.Seq[timeEntry] // whose sample is a row
}

// times describes the table of times in the page's data.
type times struct {
	// Step is the unit of times in nanoseconds, Steps the length of the recording.
	Step  int64 `json:"step"`
	Steps int   `json:"steps"`
	// Entries is the number of entries, and Scale the divisor of their weights.
	Entries int   `json:"entries"`
	Scale   int64 `json:"scale"`
	// Threads are the threads of the recording, with an array for each column.
	Threads threads `json:"threads"`
	// Open is the part of the recording to show first, "FROM-TO" in milliseconds; empty for all of it.
	Open string `json:"open,omitempty"`
}

// around returns the time around the trigger of a recording as [times.Open].
func around(m profile.Meta) string {
	from, to, ok := m.Around()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d-%d", from.Milliseconds(), to.Milliseconds())
}

// threads is a table of threads.
type threads struct {
	Name []string `json:"name"` // the last one
	PID  []int    `json:"pid"`
	TID  []int    `json:"tid"`
}

// table returns the table of times of rows. of is the row of each sample, which replaces the
// sample in the spans.
func (t *timedProfile) table(rows []sampleRow, of []uint32) timesTable {
	for i := range t.spans {
		t.spans[i].sample = of[t.spans[i].sample]
	}
	t.merge()
	table := timesTable{header: times{Step: t.step, Steps: t.steps, Open: around(t.line.Profile.Meta)}, counts: make([]int, len(rows)), rows: rows, entries: t.entries}
	h := &table.header
	for e := range table.entries {
		table.counts[e.sample]++
		h.Entries++
		for a := e.weight; a != 0; {
			h.Scale, a = a, h.Scale%a
		}
	}
	h.Scale = max(h.Scale, 1)
	for _, thread := range t.line.Threads {
		names := thread.Names
		if len(names) == 0 {
			names = t.line.Processes[thread.Process].Names
		}
		h.Threads.Name = append(h.Threads.Name, plain.Terminal(profile.LastName(names)))
		h.Threads.PID = append(h.Threads.PID, t.line.Processes[thread.Process].PID)
		h.Threads.TID = append(h.Threads.TID, thread.TID)
	}
	return table
}

// write writes the columns of the table.
func (t *timesTable) write(out *columnWriter) {
	for _, n := range t.counts {
		out.uint(uint64(n))
	}
	var last timeEntry
	for e := range t.entries {
		step := e.step
		if e.sample == last.sample {
			step -= last.step // of the first entry, 0
		}
		out.uint(uint64(step))
		last = e
	}
	for e := range t.entries {
		out.uint(uint64(e.weight / t.header.Scale))
	}
	for _, r := range t.rows {
		out.uint(uint64(r.thread))
	}
	for _, r := range t.rows {
		out.uint(uint64(r.kind))
	}
}
