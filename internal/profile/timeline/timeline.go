// Package timeline stores the events of a recording as they arrive, in a temporary file or in
// memory, and returns them thread by thread. With a file, it keeps processes, threads and a buffer
// for each thread with events in memory, but not the events.
package timeline

import (
	"fmt"
	"slices"

	"fulgur/internal/files/tempfile"
	"fulgur/internal/profile"
)

// Recorder stores events. Their stacks are numbers chosen by the caller, which
// [Recorder.Timeline] translates once frames have names. Events of one kind must be
// ordered for each thread: by a sample's time, the start of a period off the CPU, the
// completion of a request.
//
// It is not safe for concurrent use.
type Recorder struct {
	start     int64
	processes []process
	threads   []thread
	byPID     map[key]profile.ProcessID
	byTID     map[key]profile.ThreadID
	names     []string
	nameIDs   map[string]uint64
	renamed   int // number of names of all processes and threads
	counters  map[counterKey]*counter
	order     []counterKey // of the counters, by first use
	types     []profile.MarkerType

	spool spool
	text  []byte // of a marker, reused
}

// key identifies a process or thread, since IDs are reused.
type key struct {
	id    int
	start int64
}

type process struct {
	names      []profile.Name
	pid        int
	start, end int64
}

type thread struct {
	process    profile.ProcessID
	names      []profile.Name
	tid        int
	start, end int64
	seen       int64          // when it was last seen running or waiting
	streams    [kinds]*stream // nil without events
}

// NewRecorder returns a recorder for events from start on, in nanoseconds of
// CLOCK_MONOTONIC. The caller must call Close. TMPDIR selects the directory of the
// temporary file.
func NewRecorder(start int64) (*Recorder, error) {
	file, err := tempfile.Create()
	if err != nil {
		return nil, fmt.Errorf("keep events: %w", err)
	}
	return newSpooled(start, spool{file: file, writes: fileWrites}), nil
}

// NewPart returns a recorder in memory for a part of a recording, from start on; see [Join]. The part has
// the types of markers of the part before, nil for the first one.
func NewPart(start int64, before *Recorder) *Recorder {
	r := newSpooled(start, spool{file: new(memory), writes: memoryWrites})
	if before != nil {
		r.types = slices.Clone(before.types)
	}
	return r
}

func newSpooled(start int64, to spool) *Recorder {
	return &Recorder{
		start:    start,
		byPID:    map[key]profile.ProcessID{},
		byTID:    map[key]profile.ThreadID{},
		names:    []string{""},
		nameIDs:  map[string]uint64{"": 0},
		counters: map[counterKey]*counter{},
		spool:    to,
	}
}

// Start returns the start of the recording, in nanoseconds of CLOCK_MONOTONIC.
func (r *Recorder) Start() int64 { return r.start }

// Close discards the events, including the events of the [profile.Timeline].
func (r *Recorder) Close() error { return r.spool.file.Close() }

// Process returns the ID of the process pid created at start, adding it if it is new.
// start only distinguishes processes with the same pid.
func (r *Recorder) Process(pid int, start int64) profile.ProcessID {
	k := key{pid, start}
	id, ok := r.byPID[k]
	if !ok {
		id = profile.ProcessID(len(r.processes))
		r.byPID[k] = id
		r.processes = append(r.processes, process{pid: pid, start: start})
	}
	return id
}

// Thread returns the ID of a thread, like [Recorder.Process].
func (r *Recorder) Thread(of profile.ProcessID, tid int, start int64) profile.ThreadID {
	k := key{tid, start}
	id, ok := r.byTID[k]
	if !ok {
		id = profile.ThreadID(len(r.threads))
		r.byTID[k] = id
		r.threads = append(r.threads, thread{process: of, tid: tid, start: start})
	}
	return id
}

// NameProcess records the name of a process since at.
func (r *Recorder) NameProcess(id profile.ProcessID, at int64, name string) {
	p := &r.processes[id]
	p.names = r.rename(p.names, at, name)
}

// NameThread records the name of a thread since at.
func (r *Recorder) NameThread(id profile.ThreadID, at int64, name string) {
	t := &r.threads[id]
	t.names = r.rename(t.names, at, name)
}

// rename appends name to names unless it equals the last.
func (r *Recorder) rename(names []profile.Name, at int64, name string) []profile.Name {
	if len(names) > 0 && profile.LastName(names) == name {
		return names
	}
	r.renamed++
	return append(names, profile.Name{At: at, Name: r.names[r.name(name)]})
}

// The approximate sizes of a row and of a buffered chunk in memory, in bytes.
const (
	rowBytes    = 250
	streamBytes = 80
)

// Memory returns about how many bytes of memory a part takes. It looks at each thread.
func (r *Recorder) Memory() int64 {
	n := r.spool.written + int64(cap(r.spool.pending)) + int64(r.Rows())*rowBytes
	for i := range r.threads {
		for _, s := range r.threads[i].streams {
			if s != nil {
				n += streamBytes + int64(cap(s.buf)) + int64(cap(s.chunks))*16
			}
		}
	}
	for _, c := range r.counters {
		n += streamBytes + int64(cap(c.times)+cap(c.changes))*8
	}
	for _, name := range r.names {
		n += 2*int64(len(name)) + streamBytes
	}
	return n
}

// ThreadIDs returns the IDs of a thread and its process.
func (r *Recorder) ThreadIDs(id profile.ThreadID) (pid, tid int) {
	t := &r.threads[id]
	return r.processes[t.process].pid, t.tid
}

// MarkerType returns a type of markers.
func (r *Recorder) MarkerType(id profile.MarkerTypeID) profile.MarkerType { return r.types[id] }

// Rows returns the number of processes, threads and their names that are in memory.
func (r *Recorder) Rows() int { return len(r.processes) + len(r.threads) + r.renamed }

// name returns the index of a name.
func (r *Recorder) name(s string) uint64 { return profile.Intern(&r.names, r.nameIDs, s) }

// EndProcess records that a process exited at a time.
func (r *Recorder) EndProcess(id profile.ProcessID, at int64) { r.processes[id].end = at }

// EndThread records that a thread exited at a time. A few of its events may still follow.
// The kernel may report an exit long before it tears down the address space; a thread
// that is seen later ends then.
func (r *Recorder) EndThread(id profile.ThreadID, at int64) error {
	t := &r.threads[id]
	t.end = at
	for _, s := range t.streams {
		if s == nil {
			continue
		}
		if err := s.flush(&r.spool); err != nil {
			return err
		}
		s.buf = nil
	}
	return nil
}

// Timeline ends the recording at end and returns it. p holds the tables of its stacks,
// and stack translates the caller's numbers. No more events can be added. The timeline
// reads its events from the recorder, which must stay open.
func (r *Recorder) Timeline(p *profile.Profile, end int64, stack func(profile.StackID) profile.StackID) (*profile.Timeline, error) {
	t := &profile.Timeline{Profile: p, Start: r.start, End: end, Events: &events{r: r, stack: stack}, MarkerTypes: r.types}
	r.tables(t)
	t.Counters = r.finishCounters(t.Processes, end)
	r.counters = nil
	return t, r.Seal()
}

// tables gives a timeline its processes and threads.
func (r *Recorder) tables(t *profile.Timeline) {
	t.Processes, t.Threads = make([]profile.Process, len(r.processes)), make([]profile.Thread, len(r.threads))
	for i, of := range r.processes {
		t.Processes[i] = profile.Process{PID: of.pid, Names: of.names, Start: r.since(of.start), End: of.end}
	}
	for i := range r.threads {
		of := &r.threads[i]
		end := of.end
		if end != 0 {
			end = max(end, of.seen)
		}
		t.Threads[i] = profile.Thread{Process: of.process, TID: of.tid, Names: of.names, Start: r.since(of.start), End: end}
		if p := &t.Processes[of.process]; p.End != 0 {
			p.End = max(p.End, end)
		}
	}
}

// Seal ends the recording of a part, and frees the memory that only further events need.
func (r *Recorder) Seal() error {
	for i := range r.threads {
		for _, s := range r.threads[i].streams {
			if s == nil {
				continue
			}
			if err := s.flush(&r.spool); err != nil {
				return err
			}
			s.buf = nil
		}
	}
	r.byPID, r.byTID, r.nameIDs = nil, nil, nil
	err := r.spool.flush()
	r.spool.pending = nil
	return err
}

// since returns at, or 0 if that is before the start of the recording.
func (r *Recorder) since(at int64) int64 {
	if at <= r.start {
		return 0
	}
	return at
}
