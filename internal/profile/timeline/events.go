package timeline

import (
	"encoding/binary"
	"iter"

	"fulgur/internal/profile"
)

// The kinds of events. Each has its own stream, since their sources deliver them at
// different times.
const (
	kindOnCPU = iota
	kindOffCPU
	kindBlockIO
	kindFault
	kindMarker
	kinds
)

// add appends an event to a thread's stream.
func (r *Recorder) add(t profile.ThreadID, kind int, time int64, fields ...uint64) error {
	return r.stream(t, kind).add(&r.spool, time, nil, fields...)
}

// stream returns a stream of a thread.
func (r *Recorder) stream(t profile.ThreadID, kind int) *stream {
	s := r.threads[t].streams[kind]
	if s == nil {
		s = &stream{last: r.start}
		r.threads[t].streams[kind] = s
	}
	return s
}

// see records that a thread existed at a time.
func (r *Recorder) see(t profile.ThreadID, at int64) {
	r.threads[t].seen = max(r.threads[t].seen, at)
}

// AddOnCPU adds a sample of a running thread, and counts its time.
func (r *Recorder) AddOnCPU(t profile.ThreadID, e profile.OnCPU) error {
	r.Count(r.threads[t].process, profile.CounterCPU, e.Time, e.Weight)
	r.see(t, e.Time)
	return r.add(t, kindOnCPU, e.Time, uint64(e.Stack), uint64(e.Weight), uint64(e.Amount), uint64(e.CPU))
}

// AddOffCPU adds a period off the CPU.
func (r *Recorder) AddOffCPU(t profile.ThreadID, e profile.OffCPU) error {
	r.see(t, e.Start+e.Duration)
	return r.add(t, kindOffCPU, e.Start, uint64(e.Duration), uint64(e.Runnable), uint64(e.State), uint64(e.Stack),
		uint64(e.Waker.PID), uint64(e.Waker.TID), r.name(e.Waker.Comm), uint64(e.WakerStack))
}

// AddBlockIO adds a request to a block device, and counts its bytes.
func (r *Recorder) AddBlockIO(t profile.ThreadID, e profile.BlockIO) error {
	switch e.Op {
	case profile.BlockRead:
		r.Count(r.threads[t].process, profile.CounterRead, e.Completed, int64(e.Bytes))
	case profile.BlockWrite:
		r.Count(r.threads[t].process, profile.CounterWritten, e.Completed, int64(e.Bytes))
	}
	return r.add(t, kindBlockIO, e.Completed, uint64(e.Completed-e.Queued), uint64(e.Completed-e.Issued), r.name(e.Device),
		e.Sector, e.Bytes, uint64(e.Op), uint64(e.Flags), uint64(e.Stack), r.name(e.File))
}

// AddFault adds a page fault, and counts the faults that it represents.
func (r *Recorder) AddFault(t profile.ThreadID, e profile.Fault) error {
	r.Count(r.threads[t].process, profile.CounterFaults, e.Time, e.Count)
	major := uint64(0)
	if e.Major {
		major = 1
	}
	return r.add(t, kindFault, e.Time, e.Address, r.name(e.File), e.Offset, major, uint64(e.Latency), uint64(e.Stack), uint64(e.Count))
}

// AddMarkerType adds a type of markers.
func (r *Recorder) AddMarkerType(t profile.MarkerType) profile.MarkerTypeID {
	r.types = append(r.types, t)
	return profile.MarkerTypeID(len(r.types) - 1)
}

// AddMarker adds a marker.
func (r *Recorder) AddMarker(t profile.ThreadID, e profile.Marker) error {
	r.see(t, e.Time)
	r.text = r.text[:0]
	for _, v := range e.Values {
		r.text = binary.AppendUvarint(r.text, uint64(len(v)))
		r.text = append(r.text, v...)
	}
	return r.stream(t, kindMarker).add(&r.spool, e.Time, r.text, uint64(e.Type), uint64(e.Stack), uint64(e.Weight), uint64(len(e.Values)))
}

// events implements [profile.Events].
type events struct {
	r     *Recorder
	stack func(profile.StackID) profile.StackID
}

// OnCPU implements [profile.Events].
func (es *events) OnCPU(t profile.ThreadID) iter.Seq2[profile.OnCPU, error] {
	return read(es, t, kindOnCPU, 4, func(time int64, f []uint64) profile.OnCPU {
		return profile.OnCPU{Time: time, Stack: es.stackOf(f[0]), Weight: int64(f[1]), Amount: int64(f[2]), CPU: int(f[3])}
	})
}

// OffCPU implements [profile.Events].
func (es *events) OffCPU(t profile.ThreadID) iter.Seq2[profile.OffCPU, error] {
	return read(es, t, kindOffCPU, 8, func(time int64, f []uint64) profile.OffCPU {
		return profile.OffCPU{
			Start: time, Duration: int64(f[0]), Runnable: int64(f[1]), State: profile.TaskState(f[2]), Stack: es.stackOf(f[3]),
			Waker: profile.Task{PID: int(f[4]), TID: int(f[5]), Comm: es.r.names[f[6]]}, WakerStack: es.stackOf(f[7]),
		}
	})
}

// BlockIO implements [profile.Events].
func (es *events) BlockIO(t profile.ThreadID) iter.Seq2[profile.BlockIO, error] {
	return read(es, t, kindBlockIO, 9, func(time int64, f []uint64) profile.BlockIO {
		return profile.BlockIO{
			Queued: time - int64(f[0]), Issued: time - int64(f[1]), Completed: time, Device: es.r.names[f[2]],
			Sector: f[3], Bytes: f[4], Op: profile.BlockOp(f[5]), Flags: profile.BlockFlags(f[6]),
			Stack: es.stackOf(f[7]), File: es.r.names[f[8]],
		}
	})
}

// Faults implements [profile.Events].
func (es *events) Faults(t profile.ThreadID) iter.Seq2[profile.Fault, error] {
	return read(es, t, kindFault, 7, func(time int64, f []uint64) profile.Fault {
		return profile.Fault{
			Time: time, Address: f[0], File: es.r.names[f[1]], Offset: f[2], Major: f[3] != 0,
			Latency: int64(f[4]), Stack: es.stackOf(f[5]), Count: int64(f[6]),
		}
	})
}

// Markers implements [profile.Events].
func (es *events) Markers(t profile.ThreadID) iter.Seq2[profile.Marker, error] {
	return func(yield func(profile.Marker, error) bool) {
		s := es.r.threads[t].streams[kindMarker]
		if s == nil {
			return
		}
		from := es.reader(s)
		fields := make([]uint64, 4)
		for {
			time, ok, err := from.next(fields)
			if err == nil && !ok {
				return
			}
			m := profile.Marker{Time: time, Type: profile.MarkerTypeID(fields[0]), Stack: es.stackOf(fields[1]), Weight: int64(fields[2])}
			if err == nil {
				m.Values, err = from.texts(fields[3])
			}
			if err != nil {
				yield(profile.Marker{}, err)
				return
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (es *events) stackOf(n uint64) profile.StackID { return es.stack(profile.StackID(n)) }

func (es *events) reader(s *stream) reader {
	return reader{file: es.r.spool.file, chunks: s.chunks, last: es.r.start}
}

// read yields a thread's events of a kind. parse converts their n fields.
func read[E any](es *events, t profile.ThreadID, kind, n int, parse func(time int64, fields []uint64) E) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		s := es.r.threads[t].streams[kind]
		if s == nil {
			return
		}
		from := es.reader(s)
		fields := make([]uint64, n)
		for {
			time, ok, err := from.next(fields)
			if err != nil {
				var none E
				yield(none, err)
				return
			}
			if !ok || !yield(parse(time, fields), nil) {
				return
			}
		}
	}
}
