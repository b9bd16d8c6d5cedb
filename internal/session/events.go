package session

import (
	"fmt"
	"iter"
	"maps"

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

// events records the sources' events on a timeline, and adds up their values.
//
// A stack's number in the recording is the number of its trace plus one. Traces
// do not include the thread, which the event itself names: a long recording of
// a busy machine has the same stack in many threads.
//
// events implements [source.Recorder].
type events struct {
	*timeline.Recorder // nil before the measurement begins
	line               source.Timeline
	userOnly           bool
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

func newEvents(line source.Timeline, userOnly bool) (*events, error) {
	mounted, err := procfs.Mounts()
	return &events{
		line:      line,
		userOnly:  userOnly,
		threads:   threads.New(),
		mounts:    mounted,
		sums:      map[sum]stacks.Values{},
		kinds:     map[kind]uint32{},
		pending:   map[stacks.Key]int{},
		reasons:   map[profile.StackID]string{},
		writeback: map[profile.StackID]bool{},
		files:     map[uint64]string{},
	}, err
}

// connect connects the recording to a store, which limits its nodes of stacks,
// and to its sources.
func (e *events) connect(sources []source.Source, store *stacks.Store, maxNodes int) {
	e.sources, e.store = sources, store
	store.Anonymous, store.MaxNodes = true, maxNodes
}

// begin begins the recording.
func (e *events) begin(now uint64) (err error) {
	if e.Recorder, err = timeline.NewRecorder(int64(now)); err != nil {
		return err
	}
	e.threads.Recorder = e.Recorder
	return nil
}

// close discards the recording. e may be nil.
func (e *events) close() error {
	if e == nil || e.Recorder == nil {
		return nil
	}
	return e.Close()
}

// handleRecord handles a sideband record. e may be nil.
func (e *events) handleRecord(r perfevent.Record) {
	if e != nil {
		e.threads.HandleRecord(r)
	}
}

// poll does periodic work. All events that ended earlier than the time before have arrived.
func (e *events) poll(now, before uint64) error {
	if e.Recorder == nil {
		return nil
	}
	e.threads.LookAtMemory(int64(now))
	return e.threads.Forget(int64(before))
}

// handleEvent handles a source's event record.
func (e *events) handleEvent(i int, record []byte) error {
	e.from = uint8(i)
	from, ok := e.sources[i].(source.Recordable)
	if !ok {
		return fmt.Errorf("%w: an event of a source without events", ringbuf.ErrRecord)
	}
	return from.Event(record, e)
}

// Timeline implements [source.Recorder].
func (e *events) Timeline() source.Timeline { return e.line }

// Stack implements [source.Recorder].
func (e *events) Stack(key stacks.Key, value stacks.Values) profile.StackID {
	key.Source = e.from
	sample, arrived := e.store.Sample(key)
	if arrived {
		e.add(sample, value)
		return profile.StackID(sample.Trace) + 1
	}
	i, ok := e.pending[key]
	if !ok {
		i = len(e.late)
		e.pending[key] = i
		e.late = append(e.late, late{key: key})
	}
	e.late[i].value.Add(value)
	return isLate | profile.StackID(i)
}

// add adds a value to the total of a kind and stack. The waker's part of a
// stack gets no value.
func (e *events) add(at stacks.Sample, value stacks.Values) {
	if value.Samples() == 0 {
		return
	}
	k := kind{at.Source, at.File, at.Detail}
	n, ok := e.kinds[k]
	if !ok {
		n = uint32(len(e.list))
		e.kinds[k] = n
		e.list = append(e.list, k)
	}
	all := e.sums[sum{at.Trace, n}]
	all.Add(value)
	e.sums[sum{at.Trace, n}] = all
}

// Thread implements [source.Recorder].
func (e *events) Thread(pid, tid uint32, at uint64) profile.ThreadID {
	return e.threads.Thread(int(pid), int(tid), int64(at))
}

// ThreadName implements [source.Recorder].
func (e *events) ThreadName(pid, tid uint32, at uint64) string {
	return e.threads.Name(int(pid), int(tid), int64(at))
}

// Since implements [source.Recorder].
func (e *events) Since(at uint64) int64 { return max(int64(at), e.Start()) }

// File implements [source.Recorder].
func (e *events) File(id uint64) string {
	path, ok := e.files[id]
	if ok {
		return path
	}
	if f, ok := e.store.Files[id]; ok {
		path = e.mounts.Path(f)
		e.files[id] = path
	}
	return path
}

// samples yields the total of each stack.
func (e *events) samples() iter.Seq2[stacks.Sample, stacks.Values] {
	return func(yield func(stacks.Sample, stacks.Values) bool) {
		for at, value := range e.sums {
			k := e.list[at.kind]
			if !yield(stacks.Sample{Source: k.source, Trace: at.trace, File: k.file, Detail: k.detail}, value) {
				return
			}
		}
	}
}

// count resolves late stacks that have arrived meanwhile, and returns the
// values of those still missing. It gives the store the totals.
func (e *events) count() map[stacks.Key]stacks.Values {
	lost := map[stacks.Key]stacks.Values{}
	for i := range e.late {
		l := &e.late[i]
		if sample, arrived := e.store.Sample(l.key); arrived {
			e.add(sample, l.value)
			l.trace = sample.Trace + 1
		} else if l.value.Samples() > 0 {
			lost[l.key] = l.value
		}
	}
	e.store.Samples = maps.Collect(e.samples())
	return lost
}

// place adds the stacks to the profile.
func (e *events) place(p *naming.StackBuilder) {
	e.placed = make([]profile.StackID, len(e.store.Traces))
	measured := make([]uint64, len(e.placed)) // a bit for each source with events there
	for at := range e.sums {
		measured[at.trace] |= 1 << e.list[at.kind].source
	}
	for i, trace := range e.store.Traces {
		at := source.EventStack{Leaf: trace.Leaf}
		for n, s := range e.sources {
			if s, ok := s.(source.EventPlacer); ok && measured[i]>>n&1 != 0 {
				s.PlaceEvents(p, stacks.TraceID(i), &at)
			}
		}
		stack := p.PlaceFrom(at.Leaf, e.userOnly)
		if e.userOnly && at.Mark != "" {
			stack = p.Mark(stack, at.Mark)
		}
		if at.Reason != "" {
			e.reasons[stack] = at.Reason
		}
		if at.Writeback {
			e.writeback[stack] = true
		}
		e.placed[i] = stack
	}
	for i := range e.late {
		l := &e.late[i]
		if l.trace != 0 {
			l.stack = e.placed[l.trace-1]
		} else {
			l.stack = p.Mark(0, stackLost)
		}
	}
}

// stack returns the profile's stack for a stack of the recording.
func (e *events) stack(number profile.StackID) profile.StackID {
	switch {
	case number == 0:
		return 0
	case number&isLate != 0:
		return e.late[number&^isLate].stack
	}
	return e.placed[number-1]
}

// finish ends the recording at time end, with p as its tables.
func (e *events) finish(p *profile.Profile, end uint64) (*profile.Timeline, error) {
	if err := e.threads.Forget(int64(end) + 1); err != nil {
		return nil, err
	}
	tables := *p
	tables.Tasks, tables.Samples, tables.ValueTypes = nil, nil, nil
	line, err := e.Recorder.Timeline(&tables, int64(end), e.stack)
	if err != nil {
		return nil, err
	}
	line.Interval, line.Sampled, line.Reasons = e.line.Interval, e.line.Sampled, e.reasons
	e.nameGroups(line, p.Meta.Grouping)
	line.OffCPUWhole = e.line.EveryWait && p.Losses.Uncounted() == 0 && p.Losses[profile.LossUnfollowed] == 0 && p.Losses[profile.LossMissed] == 0
	line.Events = withWriteback{timeline.Sorted(line.Events), e.writeback}
	return line, nil
}

// nameGroups puts the name of its group before the name of each process.
func (e *events) nameGroups(line *profile.Timeline, by profile.Grouping) {
	for i := range line.Processes {
		p := &line.Processes[i]
		var owner *containers.Membership
		for _, o := range e.store.Owned[p.PID] {
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
