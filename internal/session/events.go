package session

import (
	"fmt"
	"iter"
	"unsafe"

	"fulgur/bpf"
	"fulgur/internal/capture/blockio"
	"fulgur/internal/capture/faults"
	"fulgur/internal/capture/mounts"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/threads"
	"fulgur/internal/capture/waits"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
	"fulgur/internal/profile/timeline"
)

// timelineSpec says what a subject's events are in a recording.
type timelineSpec struct {
	// interval is the time between two samples of a thread that runs, in ns; 0 if
	// none are taken.
	interval int64
	// weight is the time that a sample stands for, in ns; 0 for its period.
	weight int64
	// everyWait says that no time off the CPU is left out.
	everyWait bool
}

// events takes what the sources tell of into a recording, and adds it up.
//
// In the recording, a stack is the number of its trace plus one. Traces are
// anonymous: which thread something happened to is known without them, and a long
// recording of a busy machine has many of the same stack.
type events struct {
	timelineSpec
	userOnly bool
	recorder *timeline.Recorder // nil before the measurement began
	threads  *threads.Tracker
	store    *stacks.Store
	mounts   mounts.List

	sums  map[sum]stacks.Value
	kinds map[kind]uint32 // the index of each in list
	list  []kind

	// late are the keys of stacks that had not arrived when something happened in
	// them, and what that was; pending is the index of each.
	late    []late
	pending map[stacks.Key]int

	placed    []profile.StackID          // by trace
	reasons   map[profile.StackID]string // of waiting
	writeback map[profile.StackID]bool   // the kernel writes back there what was written before
	devices   map[stacks.Device]string
	files     map[uint64]string
}

// sum is what is added up apart: something of a kind that happened in a stack.
type sum struct {
	trace stacks.TraceID
	kind  uint32
}

// kind is what is said of something beside its stack; see [stacks.Key].
type kind struct {
	source       stacks.Source
	file, detail uint64
}

type late struct {
	key   stacks.Key
	value stacks.Value
	trace stacks.TraceID  // plus one, once it has arrived
	stack profile.StackID // in the profile
}

// isLate marks the numbers of stacks that are indexes of late ones.
const isLate = profile.StackID(1 << 31)

func newEvents(what timelineSpec, userOnly bool) (*events, error) {
	mounted, err := procfs.Mounts()
	return &events{
		timelineSpec: what,
		userOnly:     userOnly,
		threads:      threads.New(),
		mounts:       mounted,
		sums:         map[sum]stacks.Value{},
		kinds:        map[kind]uint32{},
		pending:      map[stacks.Key]int{},
		reasons:      map[profile.StackID]string{},
		writeback:    map[profile.StackID]bool{},
		devices:      map[stacks.Device]string{},
		files:        map[uint64]string{},
	}, err
}

// follow makes the recording's stacks those of a store, of which most places are
// kept.
func (e *events) follow(store *stacks.Store, most int) {
	e.store = store
	store.Anonymous, store.MaxNodes = true, most
}

// begin begins the recording.
func (e *events) begin(now uint64) (err error) {
	if e.recorder, err = timeline.NewRecorder(int64(now)); err != nil {
		return err
	}
	e.threads.Recorder = e.recorder
	return nil
}

// close gives the recording up. It may be called on nil.
func (e *events) close() error {
	if e == nil || e.recorder == nil {
		return nil
	}
	return e.recorder.Close()
}

// handleRecord takes note of a record. It may be called on nil.
func (e *events) handleRecord(r perfevent.Record) {
	if e != nil {
		e.threads.HandleRecord(r)
	}
}

// poll does what is to be done from time to time. Nothing comes any more of what
// ended before a time.
func (e *events) poll(now, before uint64) error {
	if e.recorder == nil {
		return nil
	}
	e.threads.LookAtMemory(int64(now))
	return e.threads.Forget(int64(before))
}

// take takes an event record of a source.
func (e *events) take(s source, record []byte) error {
	switch s.(type) {
	case sampled:
		return handle(record, unsafe.Sizeof(oncpu.Event{}), e.onCPU)
	case *offcpu.Source:
		return handle(record, offcpu.EventSize, e.offCPU)
	case *blockio.Source:
		return handle(record, unsafe.Sizeof(blockio.Event{}), e.blockIO)
	case *faults.Source:
		return handle(record, unsafe.Sizeof(faults.Event{}), e.fault)
	}
	return fmt.Errorf("%w: an event of %T", stacks.ErrRecord, s)
}

func handle[E any](record []byte, size uintptr, f func(*E) error) error {
	event, err := ringbuf.As[E](record, size)
	if err != nil {
		return err
	}
	return f(event)
}

// number returns the recording's number of the stack of a key, and adds a value to
// what happened there.
func (e *events) number(key stacks.Key, value stacks.Value) profile.StackID {
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

// add adds a value to what happened in a stack. Of a waker's nothing did.
func (e *events) add(at stacks.Sample, value stacks.Value) {
	if value.Samples == 0 {
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

// thread returns the recording's number of a thread.
func (e *events) thread(pid, tid uint32, at uint64) profile.ThreadID {
	return e.threads.Thread(int(pid), int(tid), int64(at))
}

// since returns a time, or that of the recording's beginning if it is before.
func (e *events) since(at uint64) int64 { return max(int64(at), e.recorder.Start()) }

func (e *events) onCPU(event *oncpu.Event) error {
	n := e.number(oncpu.Counted(event))
	weight := int64(event.Weight)
	if e.weight > 0 {
		weight = e.weight
	}
	return e.recorder.AddOnCPU(e.thread(event.Pid, event.Tid, event.Time), profile.OnCPU{
		Time: e.since(event.Time), Stack: n, Weight: weight, CPU: int(event.Cpu),
	})
}

func (e *events) offCPU(event *offcpu.Event) error {
	n := e.number(offcpu.Counted(event))
	start, end := e.since(event.Time), event.Time+event.Duration
	off := profile.OffCPU{
		Start: start, Duration: int64(end) - start, Runnable: min(int64(event.Waiting), int64(end)-start),
		State: taskStates[bpf.OffCPUStateClass(event.State)], Stack: n,
	}
	if pid, tid := int(event.WakerPid), int(event.WakerTid); pid != 0 {
		off.Waker = profile.Task{PID: pid, TID: tid, Comm: e.threads.Name(pid, tid, int64(end))}
	}
	if event.Waker != 0 {
		off.WakerStack = e.number(stacks.Key{Source: stacks.OffCPU, ID: event.Waker}, stacks.Value{})
	}
	return e.recorder.AddOffCPU(e.thread(event.Pid, event.Tid, end), off)
}

// taskStates are the profile's words for the kernel side's.
var taskStates = map[bpf.OffCPUStateClass]profile.TaskState{
	bpf.OffCPUStateClassSTATE_RUNNABLE:   profile.StateRunnable,
	bpf.OffCPUStateClassSTATE_SLEEPING:   profile.StateSleeping,
	bpf.OffCPUStateClassSTATE_DISK_SLEEP: profile.StateUninterruptible,
	bpf.OffCPUStateClassSTATE_STOPPED:    profile.StateStopped,
	bpf.OffCPUStateClassSTATE_TRACED:     profile.StateTraced,
	bpf.OffCPUStateClassSTATE_PARKED:     profile.StateParked,
	bpf.OffCPUStateClassSTATE_IDLE:       profile.StateIdle,
	bpf.OffCPUStateClassSTATE_DEAD:       profile.StateDead,
	bpf.OffCPUStateClassSTATE_OTHER:      profile.StateUninterruptible,
}

func (e *events) blockIO(event *blockio.Event) error {
	key, value := blockio.Counted(event)
	n := e.number(key, value)
	request := blockio.ParseDetail(key.Detail)
	device, ok := e.devices[request.Device]
	if !ok {
		device = request.Device.String()
		e.devices[request.Device] = device
	}
	return e.recorder.AddBlockIO(e.thread(event.Pid, event.Tid, event.Born), profile.BlockIO{
		Queued: e.since(event.Born), Issued: e.since(event.Issued), Completed: e.since(event.Completed),
		Device: device, Sector: event.Sector, Bytes: event.Bytes,
		Op: request.Operation.Op(), Flags: request.Operation.Flags(), Stack: n, File: e.file(event.File),
	})
}

func (e *events) fault(event *faults.Event) error {
	n := e.number(faults.Counted(event))
	return e.recorder.AddFault(e.thread(event.Pid, event.Tid, event.Time), profile.Fault{
		Time: e.since(event.Time - event.Latency), Address: event.Address, File: e.file(event.File), Offset: event.Offset,
		Major: event.Major != 0, Latency: int64(event.Latency), Count: int64(event.Period), Stack: n,
	})
}

// file returns the path of a file that the kernel side met, "" if it is not known.
func (e *events) file(id uint64) string {
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

// samples yields what happened in each stack.
func (e *events) samples() iter.Seq2[stacks.Sample, stacks.Value] {
	return func(yield func(stacks.Sample, stacks.Value) bool) {
		for at, value := range e.sums {
			k := e.list[at.kind]
			if !yield(stacks.Sample{Source: k.source, Trace: at.trace, File: k.file, Detail: k.detail}, value) {
				return
			}
		}
	}
}

// count takes the late stacks in that have arrived, and returns what happened in
// those that have not.
func (e *events) count() map[stacks.Key]stacks.Value {
	lost := map[stacks.Key]stacks.Value{}
	for i := range e.late {
		l := &e.late[i]
		if sample, arrived := e.store.Sample(l.key); arrived {
			e.add(sample, l.value)
			l.trace = sample.Trace + 1
		} else if l.value.Samples > 0 {
			lost[l.key] = l.value
		}
	}
	return lost
}

// place puts the stacks into the profile.
func (e *events) place(p *naming.StackBuilder) {
	e.placed = make([]profile.StackID, len(e.store.Traces))
	waited, requested := make([]bool, len(e.placed)), make([]bool, len(e.placed))
	for at := range e.sums {
		switch e.list[at.kind].source {
		case stacks.OffCPU:
			waited[at.trace] = true
		case stacks.BlockIO:
			requested[at.trace] = true
		}
	}
	for i, trace := range e.store.Traces {
		id, leaf := stacks.TraceID(i), trace.Leaf
		if requested[i] {
			leaf = p.WithoutProbe(leaf)
		}
		stack := p.PlaceFrom(leaf, e.userOnly)
		if waited[i] {
			reason := waits.Of(p.KernelFunctions(id))
			if e.userOnly { // or the stack would not tell it
				stack = p.Mark(stack, "["+string(reason)+"]")
			}
			if reason != waits.Other && reason != waits.Unknown {
				e.reasons[stack] = string(reason)
			}
		}
		if requested[i] && p.IsWriteback(id) {
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

// stack returns the place in the profile of a stack of the recording.
func (e *events) stack(number profile.StackID) profile.StackID {
	switch {
	case number == 0:
		return 0
	case number&isLate != 0:
		return e.late[number&^isLate].stack
	}
	return e.placed[number-1]
}

// timeline ends the recording at end, with p as its tables.
func (e *events) timeline(p *profile.Profile, end uint64) (*profile.Timeline, error) {
	if err := e.threads.Forget(int64(end) + 1); err != nil {
		return nil, err
	}
	tables := *p
	tables.Tasks, tables.Samples, tables.ValueTypes = nil, nil, nil
	line, err := e.recorder.Timeline(&tables, int64(end), e.stack)
	if err != nil {
		return nil, err
	}
	line.Interval, line.Reasons = e.interval, e.reasons
	line.OffCPUWhole = e.everyWait && p.Losses.Uncounted() == 0 && p.Losses[profile.LossUnfollowed] == 0 && p.Losses[profile.LossMissed] == 0
	line.Events = withWriteback{timeline.Sorted(line.Events), e.writeback}
	return line, nil
}

// withWriteback tells of requests by which the kernel writes back what processes
// wrote earlier: the names of functions say which these are.
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
