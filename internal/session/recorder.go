package session

import (
	"fmt"
	"iter"
	"maps"

	"fulgur/internal/capture/loop"
	"fulgur/internal/capture/mounts"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/threads"
	"fulgur/internal/containers"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
	"fulgur/internal/profile/timeline"
)

// recorder records the sources' events on a timeline, and adds up their values.
//
// A stack's number in the recording is the number of its trace plus one. Traces
// do not include the thread, which the event itself names: a long recording of
// a busy machine has the same stack in many threads.
//
// recorder implements [source.Recorder].
type recorder struct {
	*timeline.Recorder // nil before the measurement begins
	times              source.Times
	userOnly           bool
	inParts            bool  // whether the recording is divided; see next
	began              int64 // when the first part of the recording began
	watch              eventWatch
	sources            []source.Source
	from               uint8 // index of the current event's source
	threads            *threads.Tracker
	store              *stacks.Store
	mounts             mounts.List

	sums  map[sum]stacks.Values
	kinds map[kind]uint32 // index of each in list
	list  []kind

	// late holds the events of stacks that had not arrived yet, with the
	// stack's key. pending maps a key to its index.
	late    []late
	pending map[stacks.Key]int

	placed    []profile.StackID          // by trace
	reasons   map[profile.StackID]string // wait reasons
	writeback map[profile.StackID]bool   // whether the kernel writes back dirty pages in the stack
	files     map[uint64]string
}

// sum is the key of a total: events of one kind in one stack.
type sum struct {
	trace stacks.TraceID
	kind  uint32
}

// kind holds an event's properties other than its stack; see [stacks.Key].
type kind struct {
	source       uint8 // index of the source
	file, detail uint64
}

type late struct {
	key   stacks.Key
	value stacks.Values
	trace stacks.TraceID  // plus one, once it has arrived
	stack profile.StackID // in the profile
}

// isLate marks stack numbers that are indexes into late.
const isLate = profile.StackID(1 << 31)

func newRecorder(times source.Times, userOnly bool) (*recorder, error) {
	mounted, err := procfs.Mounts()
	r := emptyRecorder()
	r.times, r.userOnly, r.threads, r.mounts = times, userOnly, threads.New(), mounted
	return r, err
}

func emptyRecorder() *recorder {
	return &recorder{
		sums:    map[sum]stacks.Values{},
		kinds:   map[kind]uint32{},
		pending: map[stacks.Key]int{},
		files:   map[uint64]string{},
	}
}

// eventWatch is told of events of a recording before they are added. nil functions are not called.
type eventWatch struct {
	onCPU  func(profile.OnCPU)
	offCPU func(profile.ThreadID, profile.OffCPU)
	marker func(profile.ThreadID, profile.Marker)
}

// connect connects the recording to a store, which limits its nodes of stacks,
// and to its sources.
func (r *recorder) connect(sources []source.Source, store *stacks.Store, maxNodes int) {
	r.sources, r.store = sources, store
	store.Anonymous, store.MaxNodes = true, maxNodes
}

// begin begins the recording, in memory if it is divided into parts.
func (r *recorder) begin(now uint64) (err error) {
	if r.inParts {
		r.Recorder = timeline.NewPart(int64(now), nil)
	} else if r.Recorder, err = timeline.NewRecorder(int64(now)); err != nil {
		return err
	}
	r.threads.Recorder, r.began = r.Recorder, r.Start()
	return nil
}

// next returns the recorder of the next part, from now on, whose stacks are in store. All that is still to
// come belongs to it. r no longer changes, and another goroutine may read it.
func (r *recorder) next(store *stacks.Store, now uint64) (*recorder, error) {
	n := emptyRecorder()
	n.times, n.userOnly, n.threads, n.mounts = r.times, r.userOnly, r.threads, r.mounts
	n.inParts, n.began, n.watch = true, r.began, r.watch
	n.sources, n.store = r.sources, store
	n.Recorder = timeline.NewPart(int64(now), r.Recorder)
	n.threads.NextPart(n.Recorder, int64(now)-int64(loop.GraceForStacks))
	r.kinds, r.list, r.pending, r.sums = nil, nil, nil, nil // the store has the sums
	return n, r.Seal()
}

// Memory returns about how many bytes of memory the part takes, with its stacks.
func (r *recorder) Memory() int64 {
	const sumBytes, lateBytes = 150, 200
	return r.Recorder.Memory() + r.store.Memory() + int64(len(r.sums))*sumBytes + int64(cap(r.late))*lateBytes
}

// close discards the recording. r may be nil.
func (r *recorder) close() error {
	if r == nil || r.Recorder == nil {
		return nil
	}
	return r.Close()
}

// handleRecord handles a sideband record. r may be nil.
func (r *recorder) handleRecord(record perfevent.Record) {
	if r != nil {
		r.threads.HandleRecord(record)
	}
}

// poll does periodic work. All events that ended earlier than the time before have arrived.
func (r *recorder) poll(now, before uint64) error {
	if r.Recorder == nil {
		return nil
	}
	r.threads.LookAtMemory(int64(now))
	return r.threads.Forget(int64(before))
}

// handleEvent handles a source's event record.
func (r *recorder) handleEvent(i int, record []byte) error {
	r.from = uint8(i)
	from, ok := r.sources[i].(source.Recordable)
	if !ok {
		return fmt.Errorf("%w: an event of a source without events", ringbuf.ErrRecord)
	}
	return from.Event(record, r)
}

// Times implements [source.Recorder].
func (r *recorder) Times() source.Times { return r.times }

// Stack implements [source.Recorder].
func (r *recorder) Stack(key stacks.Key, value stacks.Values) profile.StackID {
	key.Source = r.from
	sample, arrived := r.store.Sample(key)
	if arrived {
		r.add(sample, value)
		return profile.StackID(sample.Trace) + 1
	}
	i, ok := r.pending[key]
	if !ok {
		i = len(r.late)
		r.pending[key] = i
		r.late = append(r.late, late{key: key})
	}
	r.late[i].value.Add(value)
	return isLate | profile.StackID(i)
}

// add adds a value to the total of a kind and stack. The waker's part of a
// stack gets no value.
func (r *recorder) add(at stacks.Sample, value stacks.Values) {
	if value.Samples() == 0 {
		return
	}
	k := kind{at.Source, at.File, at.Detail}
	n, ok := r.kinds[k]
	if !ok {
		n = uint32(len(r.list))
		r.kinds[k] = n
		r.list = append(r.list, k)
	}
	all := r.sums[sum{at.Trace, n}]
	all.Add(value)
	r.sums[sum{at.Trace, n}] = all
}

// Thread implements [source.Recorder].
func (r *recorder) Thread(pid, tid uint32, at uint64) profile.ThreadID {
	return r.threads.Thread(int(pid), int(tid), int64(at))
}

// ThreadName implements [source.Recorder].
func (r *recorder) ThreadName(pid, tid uint32, at uint64) string {
	return r.threads.Name(int(pid), int(tid), int64(at))
}

// Since implements [source.Recorder].
func (r *recorder) Since(at uint64) int64 { return max(int64(at), r.began) }

// AddOnCPU implements [source.Recorder].
func (r *recorder) AddOnCPU(t profile.ThreadID, e profile.OnCPU) error {
	if r.watch.onCPU != nil {
		r.watch.onCPU(e)
	}
	return r.Recorder.AddOnCPU(t, e)
}

// AddOffCPU implements [source.Recorder].
func (r *recorder) AddOffCPU(t profile.ThreadID, e profile.OffCPU) error {
	if r.watch.offCPU != nil {
		r.watch.offCPU(t, e)
	}
	return r.Recorder.AddOffCPU(t, e)
}

// AddMarker implements [source.Recorder].
func (r *recorder) AddMarker(t profile.ThreadID, e profile.Marker) error {
	if r.watch.marker != nil {
		r.watch.marker(t, e)
	}
	return r.Recorder.AddMarker(t, e)
}

// File implements [source.Recorder].
func (r *recorder) File(id uint64) string {
	path, ok := r.files[id]
	if ok {
		return path
	}
	if f, ok := r.store.Files[id]; ok {
		path = r.mounts.Path(f)
		r.files[id] = path
	}
	return path
}

// samples yields the total of each stack.
func (r *recorder) samples() iter.Seq2[stacks.Sample, stacks.Values] {
	return func(yield func(stacks.Sample, stacks.Values) bool) {
		for at, value := range r.sums {
			k := r.list[at.kind]
			if !yield(stacks.Sample{Source: k.source, Trace: at.trace, File: k.file, Detail: k.detail}, value) {
				return
			}
		}
	}
}

// count resolves late stacks that have arrived meanwhile, and returns the
// values of those still missing. It gives the store the totals.
func (r *recorder) count() map[stacks.Key]stacks.Values {
	lost := map[stacks.Key]stacks.Values{}
	for i := range r.late {
		l := &r.late[i]
		if sample, arrived := r.store.Sample(l.key); arrived {
			r.add(sample, l.value)
			l.trace = sample.Trace + 1
		} else if l.value.Samples() > 0 {
			lost[l.key] = l.value
		}
	}
	r.store.Samples = maps.Collect(r.samples())
	return lost
}

// place adds the stacks to the profile.
func (r *recorder) place(p *naming.StackBuilder) {
	r.placed, r.reasons, r.writeback = make([]profile.StackID, len(r.store.Traces)), map[profile.StackID]string{}, map[profile.StackID]bool{}
	measured := make([]uint64, len(r.placed)) // a bit for each source with events there
	for at := range r.sums {
		measured[at.trace] |= 1 << r.list[at.kind].source
	}
	for s := range r.store.Samples { // of a part
		measured[s.Trace] |= 1 << s.Source
	}
	for i, trace := range r.store.Traces {
		at := source.EventStack{Leaf: trace.Leaf}
		for n, s := range r.sources {
			if s, ok := s.(source.EventPlacer); ok && measured[i]>>n&1 != 0 {
				s.PlaceEvents(p, stacks.TraceID(i), &at)
			}
		}
		stack := p.PlaceFrom(at.Leaf, r.userOnly)
		if r.userOnly && at.Mark != "" {
			stack = p.Mark(stack, at.Mark)
		}
		if at.Reason != "" {
			r.reasons[stack] = at.Reason
		}
		if at.Writeback {
			r.writeback[stack] = true
		}
		r.placed[i] = stack
	}
	for i := range r.late {
		l := &r.late[i]
		if l.trace != 0 {
			l.stack = r.placed[l.trace-1]
		} else {
			l.stack = p.Mark(0, stackLost)
		}
	}
}

// stack returns the profile's stack for a stack of the recording.
func (r *recorder) stack(number profile.StackID) profile.StackID {
	switch {
	case number == 0:
		return 0
	case number&isLate != 0:
		return r.late[number&^isLate].stack
	}
	return r.placed[number-1]
}

// finish ends the recording at time end, with p as its tables.
func (r *recorder) finish(p *profile.Profile, end uint64) (*profile.Timeline, error) {
	if err := r.threads.Forget(int64(end) + 1); err != nil {
		return nil, err
	}
	line, err := r.Timeline(tablesOf(p), int64(end), r.stack)
	if err != nil {
		return nil, err
	}
	r.describe(line, p, r.store.Owned)
	return line, nil
}

// describe completes the timeline of p. owned are the owners of processes.
func (r *recorder) describe(line *profile.Timeline, p *profile.Profile, owned map[int][]stacks.Ownership) {
	line.Interval, line.Sampled, line.Reasons = r.times.Interval, r.times.Sampled, r.reasons
	nameGroups(line, p.Meta.Grouping, owned)
	line.OffCPUWhole = r.times.EveryWait && p.Losses.Uncounted() == 0 && p.Losses[profile.LossUnfollowed] == 0 && p.Losses[profile.LossMissed] == 0
	line.Events = withWriteback{timeline.Sorted(line.Events), r.writeback}
}

// tablesOf returns the tables of a profile for a timeline.
func tablesOf(p *profile.Profile) *profile.Profile {
	tables := *p
	tables.Tasks, tables.Samples, tables.ValueTypes = nil, nil, nil
	return &tables
}

// nameGroups puts the name of its group before the name of each process.
func nameGroups(line *profile.Timeline, by profile.Grouping, owned map[int][]stacks.Ownership) {
	for i := range line.Processes {
		p := &line.Processes[i]
		var owner *containers.Membership
		for _, o := range owned[p.PID] {
			if p.End == 0 || int64(o.Since) <= p.End {
				owner = o.Owner
			}
		}
		if group := owner.Owner().GroupName(by); group != "" {
			for n := range p.Names {
				p.Names[n].Name = group + ": " + p.Names[n].Name
			}
		}
	}
}

// withWriteback marks the requests by which the kernel writes back data that
// processes wrote earlier. It recognizes them by function names in their
// stacks.
type withWriteback struct {
	profile.Events
	stacks map[profile.StackID]bool
}

// BlockIO implements [profile.Events].
func (w withWriteback) BlockIO(t profile.ThreadID) iter.Seq2[profile.BlockIO, error] {
	return func(yield func(profile.BlockIO, error) bool) {
		for request, err := range w.Events.BlockIO(t) {
			if w.stacks[request.Stack] {
				request.Flags |= profile.FlagWriteback
			}
			if !yield(request, err) {
				return
			}
		}
	}
}
