package offcpu

import (
	"unsafe"

	"fulgur/bpf"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/waits"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
)

// Event is a time off the CPU in a timeline: what bpf/offcpu.bpf.c sends of each
// where one is asked for. Its State is a [States] of one.
type Event = bpf.OffCPUTimelineEvent

// EventSize is the size of an event without the stack of the waker, which is last
// and sent only if that was asked for.
const EventSize = unsafe.Offsetof(Event{}.Waker)

// Counted says what an event adds to the counts, as if it were an entry of a count
// map.
func Counted(e *Event) (stacks.Key, stacks.Values) {
	k := bpf.OffCPUCountKey{Id: e.Id, Kernel: e.Kernel}
	if bpf.OffCPUStateClass(e.State) == bpf.OffCPUStateClassSTATE_RUNNABLE {
		k.Runnable = 1
	}
	return counted(k, bpf.OffCPUCountValue{Times: 1, Sleeping: e.Duration - e.Waiting, Waiting: e.Waiting})
}

// Event implements [source.Source].
func (s *Source) Event(record []byte, to source.Recorder) error {
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

// PlaceEvents implements [source.Source].
func (*Source) PlaceEvents(p *naming.StackBuilder, id stacks.TraceID, at *source.EventStack) {
	reason := waits.Of(p.KernelFunctions(id))
	at.Mark = "[" + string(reason) + "]"
	if reason != waits.Other && reason != waits.Unknown {
		at.Reason = string(reason)
	}
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
