package latency

import (
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
)

// event is an interval on a timeline, which bpf/latency.bpf.c sends if a timeline is requested.
type event = bpf.LatencyTimelineEvent

var _ interface {
	source.Source
	source.Waiting
	source.Recordable
	source.EventPlacer
} = (*recordedSource)(nil)

// recordedSource is a [Source] whose intervals are recorded; see [Config.Recorded].
type recordedSource struct {
	*Source
	name, value string
	marker      *profile.MarkerTypeID
}

// Event implements [source.Recordable].
func (s *recordedSource) Event(record []byte, to source.Recorder) error {
	e, err := ringbuf.As[event](record, unsafe.Sizeof(event{}))
	if err != nil {
		return err
	}
	if s.marker == nil {
		id := to.AddMarkerType(profile.MarkerType{Name: s.name, Event: s.value, Unit: "nanoseconds", Spans: true})
		s.marker = &id
	}
	n := to.Stack(stacks.Key{ID: e.Id, Detail: e.Detail}, stacks.Values{Intervals: 1, Time: e.Duration})
	end := e.Time + e.Duration
	since := to.Since(e.Time)
	return to.AddMarker(to.Thread(e.Pid, e.Tid, end), profile.Marker{Time: since, Type: *s.marker, Weight: int64(end) - since, Stack: n})
}

// PlaceEvents leaves out the functions of the kernel that run the program.
func (*recordedSource) PlaceEvents(p *naming.StackBuilder, _ stacks.TraceID, at *source.EventStack) {
	at.Leaf = p.WithoutProbe(at.Leaf)
}
