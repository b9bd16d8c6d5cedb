package oncpu

import (
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
)

// Event is a sample on a timeline, which bpf/oncpu.bpf.c sends if a timeline is
// requested.
type Event = bpf.OnCPUTimelineEvent

// ParseEvent returns the event in a record.
func ParseEvent(record []byte) (*Event, error) {
	return ringbuf.As[Event](record, unsafe.Sizeof(Event{}))
}

// Counted converts an event to what an entry of a count map would hold for it.
func Counted(e *Event) (stacks.Key, stacks.Values) {
	return counted(bpf.OnCPUCountKey{Id: e.Id}, bpf.OnCPUCountValue{Samples: 1, Weight: e.Weight})
}

// Event implements [source.Recordable].
func (s *Source) Event(record []byte, to source.Recorder) error { return AddEvent(record, to) }

// AddEvent adds the event in a record to a recording, as [Source.Event].
func AddEvent(record []byte, to source.Recorder) error {
	e, err := ParseEvent(record)
	if err != nil {
		return err
	}
	n := to.Stack(Counted(e))
	sample := profile.OnCPU{Time: to.Since(e.Time), Stack: n, Weight: int64(e.Weight), CPU: int(e.Cpu)}
	if times := to.Times(); times.Sampled != (profile.ValueType{}) {
		sample.Amount, sample.Weight = sample.Weight, times.Interval
	}
	return to.AddOnCPU(to.Thread(e.Pid, e.Tid, e.Time), sample)
}
