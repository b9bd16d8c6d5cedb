package blockio

import (
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
)

// Event is a request on a timeline, which bpf/blockio.bpf.c sends if a timeline is
// requested.
type Event = bpf.BlockIOTimelineEvent

// Counted converts an event to what an entry of a count map would hold for it.
func Counted(e *Event) (stacks.Key, stacks.Values) {
	return counted(
		bpf.BlockIOCountKey{Id: e.Id, File: e.File, Device: e.Device, Operation: e.Operation},
		bpf.BlockIOCountValue{Requests: 1, Bytes: e.Bytes, Queued: e.Issued - e.Born, InDevice: e.Completed - e.Issued},
	)
}

// Event implements [source.Recordable].
func (s *Source) Event(record []byte, to source.Recorder) error {
	e, err := ringbuf.As[Event](record, unsafe.Sizeof(Event{}))
	if err != nil {
		return err
	}
	n := to.Stack(Counted(e))
	operation := Operation(e.Operation)
	return to.AddBlockIO(to.Thread(e.Pid, e.Tid, e.Born), profile.BlockIO{
		Queued: to.Since(e.Born), Issued: to.Since(e.Issued), Completed: to.Since(e.Completed),
		Device: s.deviceName(device(e.Device)), Sector: e.Sector, Bytes: e.Bytes,
		Op: operation.Op(), Flags: operation.Flags(), Stack: n, File: to.File(e.File),
	})
}

// deviceName returns the name of a device. It caches names.
func (s *Source) deviceName(d stacks.Device) string {
	name, ok := s.devices[d]
	if !ok {
		name = d.String()
		if s.devices == nil {
			s.devices = map[stacks.Device]string{}
		}
		s.devices[d] = name
	}
	return name
}

// PlaceEvents implements [source.EventPlacer].
func (*Source) PlaceEvents(p *naming.StackBuilder, id stacks.TraceID, at *source.EventStack) {
	at.Leaf = p.WithoutProbe(at.Leaf)
	at.Writeback = p.IsWriteback(id)
}
