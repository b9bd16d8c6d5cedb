package hits

import (
	"fmt"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
)

// Event is a hit on a timeline, which bpf/count.bpf.c sends if a timeline is requested.
type Event = bpf.CountTimelineEvent

// eventSize is the size of an event without texts.
const eventSize = unsafe.Offsetof(Event{}.Text)

// markers converts hits to markers.
type markers struct {
	probe *events.Probe
	// types are the types of the points that were hit.
	types map[uint64]profile.MarkerTypeID // by cookie
	event Event                           // reused
}

// Event implements [source.Recordable].
func (s *Source) Event(record []byte, to source.Recorder) error {
	m := &s.markers
	e := &m.event
	if err := ringbuf.Copy(e, record, eventSize); err != nil {
		return err
	}
	point, ok := m.probe.PointOf(e.Cookie)
	if !ok {
		return fmt.Errorf("%w: a hit of point %d", ringbuf.ErrRecord, e.Cookie>>32)
	}
	n := to.Stack(counted(bpf.CountCountKey{Id: e.Id}, bpf.CountCountValue{Hits: 1}))
	return to.AddMarker(to.Thread(e.Pid, e.Tid, e.Time), profile.Marker{
		Time: to.Since(e.Time), Type: m.typeOf(e.Cookie, point, to), Values: values(e, point.Shown), Stack: n,
	})
}

// typeOf returns the type of a point's markers.
func (m *markers) typeOf(cookie uint64, point events.Point, to source.Recorder) profile.MarkerTypeID {
	id, ok := m.types[cookie]
	if ok {
		return id
	}
	t := profile.MarkerType{Name: m.probe.NameOf(point), Event: m.probe.Event.String()}
	for _, f := range point.Shown {
		t.Fields = append(t.Fields, f.Name)
	}
	if m.types == nil {
		m.types = map[uint64]profile.MarkerTypeID{}
	}
	id = to.AddMarkerType(t)
	m.types[cookie] = id
	return id
}

// values returns the texts of the fields of a hit.
func values(e *Event, shown []events.Shown) []string {
	return events.ShownValues(shown, e.Texts, e.Numbers[:], func(_, nth int) []byte {
		return unsafe.Slice((*byte)(unsafe.Pointer(&e.Text[nth])), unsafe.Sizeof(e.Text[nth]))
	})
}

// PlaceEvents leaves out the functions of the kernel that run the program.
func (s *Source) PlaceEvents(p *naming.StackBuilder, _ stacks.TraceID, at *source.EventStack) {
	at.Leaf = p.WithoutProbe(at.Leaf)
}
