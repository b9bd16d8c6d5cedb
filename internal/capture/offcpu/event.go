package offcpu

import (
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/waits"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
)

// Event is a wait on a timeline, which bpf/offcpu.bpf.c sends if a timeline is
// requested. Its State is a [States] with one element.
type Event = bpf.OffCPUTimelineEvent

// EventSize is the size of an event without the waker's stack, which is last and
// optional.
const EventSize = unsafe.Offsetof(Event{}.Waker)

// Counted converts an event to what an entry of a count map would hold for it.
func Counted(e *Event) (stacks.Key, stacks.Values) {
	k := bpf.OffCPUCountKey{Id: e.Id, Kernel: e.Kernel}
	if bpf.OffCPUStateClass(e.State) == bpf.OffCPUStateClassSTATE_RUNNABLE {
		k.Runnable = 1
	}
	return counted(k, bpf.OffCPUCountValue{Times: 1, Sleeping: e.Duration - e.Waiting, Waiting: e.Waiting})
}

// Event implements [source.Recordable].
func (s *Source) Event(record []byte, to source.Recorder) error { return AddEvent(record, to) }

// AddEvent adds the event in a record to a recording, as [Source.Event].
func AddEvent(record []byte, to source.Recorder) error {
	e, err := ringbuf.As[Event](record, EventSize)
	if err != nil {
		return err
	}
	n := to.Stack(Counted(e))
	start, end := to.Since(e.Time), e.Time+e.Duration
	off := profile.OffCPU{
		Start: start, Duration: int64(end) - start, Runnable: min(int64(e.Waiting), int64(end)-start),
		State: taskStates[bpf.OffCPUStateClass(e.State)], Stack: n,
	}
	if e.WakerPid != 0 {
		off.Waker = profile.Task{PID: int(e.WakerPid), TID: int(e.WakerTid), Comm: to.ThreadName(e.WakerPid, e.WakerTid, end)}
	}
	if e.Waker != 0 {
		off.WakerStack = to.Stack(stacks.Key{ID: e.Waker}, stacks.Values{})
	}
	return to.AddOffCPU(to.Thread(e.Pid, e.Tid, end), off)
}

// PlaceEvents implements [source.EventPlacer].
func (*Source) PlaceEvents(p *naming.StackBuilder, id stacks.TraceID, at *source.EventStack) {
	PlaceEvents(p, id, at)
}

// PlaceEvents completes the stack of waits in a recording, as [Source.PlaceEvents].
func PlaceEvents(p *naming.StackBuilder, id stacks.TraceID, at *source.EventStack) {
	reason := ReasonOf(p, id, waits.Of)
	at.Mark = "[" + string(reason) + "]"
	if reason != waits.Other && reason != waits.Unknown {
		at.Reason = string(reason)
	}
}

// taskStates maps the kernel side's states to the profile's.
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
