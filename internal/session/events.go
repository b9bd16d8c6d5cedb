package session

import (
	"fmt"
	"iter"
	"unsafe"

	"fulgur/bpf"
	"fulgur/internal/profile"
	"fulgur/internal/ringbuf"
	"fulgur/internal/source/blockio"
	"fulgur/internal/source/faults"
	"fulgur/internal/source/offcpu"
	"fulgur/internal/source/oncpu"
	"fulgur/internal/stacks"
	"fulgur/internal/timeline"
	"fulgur/internal/waits"
)

// inTime says what a subject's events are in a recording.
type inTime struct {
	// interval is the time between two samples of a thread that runs, in ns; 0 if
	// none are taken.
	interval int64
	// weight is the time that a sample stands for, in ns; 0 for its period.
	weight int64
	// everyWait says that no time off the CPU is left out.
	everyWait bool
}

// events takes what the sources tell of into a recording, and adds it up: the same
// stack is one number, whatever happened there.
type events struct {
	inTime
	userOnly bool
	recorder *timeline.Recorder // nil before the measurement began
	lives    *lives
	store    *stacks.Store
	mounts   mounts

	numbers map[stacks.Sample]profile.StackID
	pending map[stacks.Key]profile.StackID // of those whose stack has not arrived
	kept    []kept                         // by number; the first is no stack

	devices map[blockio.Device]string
	files   map[uint64]string
}

// kept is a stack of the recording, and what was counted in it.
type kept struct {
	sample stacks.Sample
	value  stacks.Value
	lost   bool // it has not arrived
	// stack is its place in the profile, reason what is waited for there, and
	// writeback whether the kernel writes back there what was written before.
	stack     profile.StackID
	reason    waits.Reason
	writeback bool
}

func newEvents(what inTime, userOnly bool) (*events, error) {
	mounts, err := readMounts()
	return &events{
		inTime:   what,
		userOnly: userOnly,
		lives:    newLives(),
		mounts:   mounts,
		numbers:  map[stacks.Sample]profile.StackID{},
		pending:  map[stacks.Key]profile.StackID{},
		kept:     make([]kept, 1),
		devices:  map[blockio.Device]string{},
		files:    map[uint64]string{},
	}, err
}

// begin begins the recording.
func (e *events) begin(now uint64) (err error) {
	if e.recorder, err = timeline.NewRecorder(int64(now)); err != nil {
		return err
	}
	e.lives.recorder = e.recorder
	return nil
}

// close gives the recording up. It may be called on nil.
func (e *events) close() error {
	if e == nil || e.recorder == nil {
		return nil
	}
	return e.recorder.Close()
}

// poll does what is to be done from time to time. Nothing comes any more of what
// ended before a time.
func (e *events) poll(now, before uint64) error {
	if e.recorder == nil {
		return nil
	}
	e.lives.lookAtMemory(int64(now))
	return e.lives.forget(int64(before))
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
// what was counted in it.
func (e *events) number(key stacks.Key, value stacks.Value) profile.StackID {
	sample, arrived := e.store.Sample(key)
	var n profile.StackID
	var ok bool
	if arrived {
		n, ok = e.numbers[sample]
	} else {
		n, ok = e.pending[key]
	}
	if !ok {
		n = profile.StackID(len(e.kept))
		e.kept = append(e.kept, kept{sample: sample, lost: !arrived})
		if arrived {
			e.numbers[sample] = n
		} else {
			e.pending[key] = n
		}
	}
	e.kept[n].value.Add(value)
	return n
}

// thread returns the recording's number of the thread that had a stack at a time.
func (e *events) thread(pid, tid uint32, at uint64, stack profile.StackID) profile.ThreadID {
	return e.lives.thread(int(pid), int(tid), int64(at), func() string {
		if k := e.kept[stack]; !k.lost {
			return e.store.Bodies[k.sample.Body].Name()
		}
		return threadName(int(pid), int(tid))
	})
}

// since returns a time, or that of the recording's beginning if it is before.
func (e *events) since(at uint64) int64 { return max(int64(at), e.recorder.Start()) }

func (e *events) onCPU(event *oncpu.Event) error {
	n := e.number(oncpu.Counted(event))
	weight := int64(event.Weight)
	if e.weight > 0 {
		weight = e.weight
	}
	return e.recorder.AddOnCPU(e.thread(event.Pid, event.Tid, event.Time, n), profile.OnCPU{
		Time: e.since(event.Time), Stack: n, Weight: weight, CPU: int(event.Cpu),
	})
}

func (e *events) offCPU(event *offcpu.Event) error {
	n := e.number(offcpu.Counted(event))
	end := event.Time + event.Duration
	off := profile.OffCPU{
		Start: e.since(event.Time), Duration: int64(event.Duration), Runnable: int64(event.Waiting),
		State: taskStates[bpf.OffCPUStateClass(event.State)], Stack: n,
	}
	if pid, tid := int(event.WakerPid), int(event.WakerTid); pid != 0 {
		off.Waker = profile.Task{PID: pid, TID: tid, Comm: e.lives.name(pid, tid, int64(end))}
	}
	if event.Waker != 0 {
		off.WakerStack = e.number(stacks.Key{Source: stacks.OffCPU, ID: event.Waker}, stacks.Value{})
	}
	return e.recorder.AddOffCPU(e.thread(event.Pid, event.Tid, end, n), off)
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
	return e.recorder.AddBlockIO(e.thread(event.Pid, event.Tid, event.Born, n), profile.BlockIO{
		Queued: e.since(event.Born), Issued: e.since(event.Issued), Completed: e.since(event.Completed),
		Device: device, Sector: event.Sector, Bytes: event.Bytes,
		Op: request.Operation.Op(), Flags: request.Operation.Flags(), Stack: n,
	})
}

func (e *events) fault(event *faults.Event) error {
	n := e.number(faults.Counted(event))
	return e.recorder.AddFault(e.thread(event.Pid, event.Tid, event.Time, n), profile.Fault{
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
		path = e.mounts.path(f)
		e.files[id] = path
	}
	return path
}

// count moves what was counted into the store, and returns what has no stack there.
func (e *events) count() map[stacks.Key]stacks.Value {
	lost := map[stacks.Key]stacks.Value{}
	for key, n := range e.pending {
		k := &e.kept[n]
		if sample, arrived := e.store.Sample(key); arrived {
			k.sample, k.lost = sample, false
		} else if k.value.Samples > 0 { // else it is a waker's, whose wait counts
			lost[key] = k.value
		}
	}
	for _, k := range e.kept[1:] {
		if !k.lost && k.value.Samples > 0 {
			e.store.CountSample(k.sample, k.value)
		}
	}
	e.numbers, e.pending = nil, nil
	return lost
}

// place puts the stacks into the profile.
func (e *events) place(p *placer) {
	for i := range e.kept[1:] {
		k := &e.kept[i+1]
		if k.lost {
			k.stack = p.mark(0, stackLost)
			continue
		}
		leaf := p.store.Bodies[k.sample.Body].Leaf
		switch k.sample.Source {
		case stacks.OffCPU:
			k.reason = waits.Of(p.kernelFunctions(k.sample.Body))
			k.stack = p.placeFrom(leaf, e.userOnly)
			if e.userOnly { // or the stack would not tell it
				k.stack = p.mark(k.stack, "["+string(k.reason)+"]")
			}
		case stacks.BlockIO:
			k.writeback = p.isWriteback(k.sample.Body)
			k.stack = p.placeFrom(p.withoutProbe(leaf), e.userOnly)
		default:
			k.stack = p.placeFrom(leaf, e.userOnly)
		}
	}
}

// timeline ends the recording at end, with p as its tables. losses are those of the
// run.
func (e *events) timeline(p *profile.Profile, end uint64) (*profile.Timeline, error) {
	tables := *p
	tables.Tasks, tables.Samples, tables.ValueTypes = nil, nil, nil
	line, err := e.recorder.Timeline(&tables, int64(end), func(n profile.StackID) profile.StackID { return e.kept[n].stack })
	if err != nil {
		return nil, err
	}
	line.Interval = e.interval
	line.OffCPUWhole = e.everyWait && p.Losses.Samples == 0 && p.Losses.Unfollowed == 0
	line.Reasons = map[profile.StackID]string{}
	written := map[profile.StackID]bool{}
	for _, k := range e.kept[1:] {
		switch {
		case k.reason != "" && k.reason != waits.Other && k.reason != waits.Unknown:
			line.Reasons[k.stack] = string(k.reason)
		case k.writeback:
			written[k.stack] = true
		}
	}
	line.Events = withWriteback{line.Events, written}
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
