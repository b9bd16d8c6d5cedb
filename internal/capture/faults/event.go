package faults

import (
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
)

// Event is a fault on a timeline, which bpf/faults.bpf.c sends if a timeline is
// requested.
type Event = bpf.FaultsTimelineEvent

// Counted converts an event to what an entry of a count map would hold for it.
func Counted(e *Event) (stacks.Key, stacks.Values) {
	v := bpf.FaultsCountValue{Samples: 1, Minor: e.Period, Latency: e.Latency * e.Period}
	if e.Major != 0 {
		v.Minor, v.Major = 0, e.Period
	}
	return counted(bpf.FaultsCountKey{Id: e.Id, File: e.File, Kind: e.Kind}, v)
}

// Event implements [source.Recordable].
func (s *Source) Event(record []byte, to source.Recorder) error {
	e, err := ringbuf.As[Event](record, unsafe.Sizeof(Event{}))
	if err != nil {
		return err
	}
	n := to.Stack(Counted(e))
	return to.AddFault(to.Thread(e.Pid, e.Tid, e.Time), profile.Fault{
		Time: to.Since(e.Time - e.Latency), Address: e.Address, File: to.File(e.File), Offset: e.Offset,
		Major: e.Major != 0, Latency: int64(e.Latency), Count: int64(e.Period), Stack: n,
	})
}
