package locks

import (
	"cmp"
	"fmt"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
)

// event is a wait on a timeline, which bpf/latency.bpf.c sends if a timeline is requested.
type event = bpf.LatencyTimelineEvent

// markerType returns the type of the markers of a kind of locks.
func (k kind) markerType() profile.MarkerType {
	return profile.MarkerType{Name: k.name, Event: Value.Type, Fields: []string{"lock", "held by", "woken by"}, Unit: Value.Unit, Spans: true}
}

// Event implements [source.Recordable].
func (s *lockSource) Event(record []byte, to source.Recorder) error {
	e, err := ringbuf.As[event](record, unsafe.Sizeof(event{}))
	if err != nil {
		return err
	}
	if s.marker == nil {
		id := to.AddMarkerType(s.kind.markerType())
		s.marker = &id
	}
	name := s.lock(e.Pid, e.Detail)
	n := to.Stack(stacks.Key{ID: e.Id, Detail: s.record(name)}, stacks.Values{latency.Intervals: 1, latency.Time: e.Duration})
	end := e.Time + e.Duration
	since := to.Since(e.Time)
	values := []string{name, "", ""}
	if e.Owner != 0 {
		values[1] = fmt.Sprintf("%s %d", cmp.Or(s.Owner(e.Owner), "thread"), e.Owner)
	}
	if e.WakerPid != 0 {
		values[2] = fmt.Sprintf("%s %d/%d", to.ThreadName(e.WakerPid, e.WakerTid, end), e.WakerPid, e.WakerTid)
	}
	return to.AddMarker(to.Thread(e.Pid, e.Tid, end), profile.Marker{
		Time: since, Type: *s.marker, Values: values, Weight: int64(end) - since, Stack: n,
	})
}

// PlaceEvents leaves out the functions of the kernel that run the program.
func (*lockSource) PlaceEvents(p *naming.StackBuilder, _ stacks.TraceID, at *source.EventStack) {
	at.Leaf = p.WithoutProbe(at.Leaf)
}
