// Package threads tracks the lifetimes and names of the machine's threads and
// processes, and the memory of processes, for recordings.
package threads

import (
	"fmt"
	"slices"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
	"fulgur/internal/profile/timeline"
)

// Tracker tracks the machine's threads. A thread is added to the recording with its
// first event, together with all its names. The tracker handles the same records as
// the table of processes and, like that table, answers queries about times before
// the last record.
type Tracker struct {
	// Recorder receives the threads. It must be set before the first event.
	Recorder *timeline.Recorder

	threads, processes map[int]*life // newest of each ID
	ended              []*life       // in order of exit, until forgotten
	// recorded holds the running processes that are part of the recording.
	recorded []*life
	looked   int64 // time of the last look at memory
	part     int   // number of the part of the recording
}

// life is the lifetime of a thread or process. All times are in ns.
type life struct {
	id         int
	process    *life          // of a thread; nil for a process
	start, end int64          // 0 if not observed
	names      []profile.Name // in chronological order
	written    int            // how many names are recorded
	prev       *life          // previous life with the same ID
	recorded   bool
	// number is the recording's ThreadID, or ProcessID for a process, in the part with that number.
	number uint32
	part   int
	// For a process: whether it had events since its resident memory was read,
	// and the last result in bytes.
	ran      bool
	resident int64
}

// New returns an empty Tracker.
func New() *Tracker { return &Tracker{threads: map[int]*life{}, processes: map[int]*life{}} }

// NextPart makes to receive the threads from a time on, as the next part of the recording; see
// [timeline.Join]. Those that the recording has are added with their next event or their end, and with
// the names that they had then.
func (l *Tracker) NextPart(to *timeline.Recorder, at int64) {
	l.Recorder = to
	l.part++
	for _, p := range l.recorded {
		p.resident = 0 // counted anew
		p.ran = true
	}
	for _, lives := range []map[int]*life{l.threads, l.processes} {
		for _, of := range lives {
			for ; of != nil; of = of.prev {
				of.dropNames(at)
			}
		}
	}
}

// dropNames drops the names before the one that it had at a time.
func (of *life) dropNames(at int64) {
	n := 0
	for n+1 < len(of.names) && of.names[n+1].At <= at {
		n++
	}
	of.names = slices.Delete(of.names, 0, n)
	of.written = max(of.written-n, 0)
}

// renumber gives a life that the recording has a number in its current part.
func (l *Tracker) renumber(of *life) {
	if of.part == l.part {
		return
	}
	of.part, of.written = l.part, 0
	if of.process == nil {
		of.number = uint32(l.Recorder.Process(of.id, of.start))
	} else {
		l.renumber(of.process)
		of.number = uint32(l.Recorder.Thread(profile.ProcessID(of.process.number), of.id, of.start))
	}
	l.record(of)
}

// HandleRecord handles a sideband record.
func (l *Tracker) HandleRecord(r perfevent.Record) {
	at := int64(r.When())
	switch r := r.(type) {
	case perfevent.Fork:
		if r.PID <= 0 || r.TID <= 0 {
			return // outside of our PID namespace
		}
		var names []profile.Name
		if parent := l.newest(r.PPID, r.PTID, at); parent != nil {
			if len(parent.names) == 0 { // named before the tracker started
				parent.begin(threadName(r.PPID, r.PTID))
			}
			if name := profile.LastName(parent.names); name != unknownName {
				names = []profile.Name{{At: at, Name: name}}
			}
		}
		process := l.processes[r.PID]
		if r.PID != r.PPID || process == nil {
			process = &life{id: r.PID, start: at, names: names, prev: process}
			l.processes[r.PID] = process
		}
		l.threads[r.TID] = &life{id: r.TID, process: process, start: at, names: slices.Clone(names), prev: l.threads[r.TID]}
	case perfevent.Comm:
		t := l.newest(r.PID, r.TID, at)
		if t == nil {
			return
		}
		l.rename(t, at, r.Comm)
		if r.TID == r.PID {
			l.rename(t.process, at, r.Comm)
		}
		if r.Exec { // perhaps by another thread, after the first one's exit
			t.end, t.process.end = 0, 0
			if p := t.process; p.recorded && !slices.Contains(l.recorded, p) {
				l.recorded = append(l.recorded, p)
			}
		}
	case perfevent.Exit:
		t := l.newest(r.PID, r.TID, at)
		if t == nil {
			return
		}
		t.end = at
		l.ended = append(l.ended, t)
		// The other threads may exit after the first one. No record marks
		// the last exit.
		if r.TID == r.PID {
			t.process.end = at
			l.ended = append(l.ended, t.process)
		} else if t.process.end != 0 {
			t.process.end = at
		}
	}
}

// newest returns the life of a record's thread, nil if the thread is outside of our
// PID namespace.
func (l *Tracker) newest(pid, tid int, at int64) *life {
	if pid <= 0 || tid <= 0 {
		return nil
	}
	if t := l.threads[tid]; t != nil && t.process.id == pid {
		return t
	}
	return l.unseen(pid, tid, at)
}

func (l *Tracker) rename(of *life, at int64, name string) {
	of.names = append(of.names, profile.Name{At: at, Name: name})
	if of.recorded && of.part == l.part {
		l.record(of)
	}
}

// record passes new names to the recording.
func (l *Tracker) record(of *life) {
	for _, n := range of.names[of.written:] {
		if of.process != nil {
			l.Recorder.NameThread(profile.ThreadID(of.number), n.At, n.Name)
		} else {
			l.Recorder.NameProcess(profile.ProcessID(of.number), n.At, n.Name)
		}
	}
	of.written = len(of.names)
}

// at returns the life of an ID at a time, nil if unknown.
func (of *life) at(at int64) *life {
	for of != nil && of.start > at {
		of = of.prev
	}
	return of
}

// Thread returns the recording's number of a thread that has an event at a time.
func (l *Tracker) Thread(pid, tid int, at int64) profile.ThreadID {
	t := l.threads[tid].at(at)
	if t == nil || t.process.id != pid {
		t = l.unseen(pid, tid, at)
	}
	t.process.ran = true
	if t.recorded {
		l.renumber(t)
		return profile.ThreadID(t.number)
	}
	if p := t.process; !p.recorded {
		if p.unnamed(at) {
			p.begin(threadName(pid, pid))
		}
		p.recorded, p.part, p.number = true, l.part, uint32(l.Recorder.Process(pid, p.start))
		l.record(p)
		l.recorded = append(l.recorded, p)
	}
	if t.unnamed(at) {
		t.begin(threadName(pid, tid))
	}
	l.renumber(t.process)
	t.recorded, t.part, t.number = true, l.part, uint32(l.Recorder.Thread(profile.ProcessID(t.process.number), tid, t.start))
	l.record(t)
	return profile.ThreadID(t.number)
}

// AddCurrent adds the current threads of processes, nil for all processes, with their
// names. Later, when an event refers to them, they may have exited.
func (l *Tracker) AddCurrent(pids []int) error {
	if pids == nil {
		var err error
		if pids, err = procfs.Processes(); err != nil {
			return fmt.Errorf("list processes: %w", err)
		}
	}
	for _, pid := range pids {
		tids, err := procfs.Threads(pid)
		if err != nil {
			continue // it is gone
		}
		for _, tid := range tids {
			if l.threads[tid] != nil {
				continue
			}
			p := l.processes[pid]
			if p == nil {
				p = &life{id: pid}
				p.begin(threadName(pid, pid))
				l.processes[pid] = p
			}
			t := &life{id: tid, process: p}
			t.begin(threadName(pid, tid))
			l.threads[tid] = t
		}
	}
	return nil
}

// unseen returns a new life of a thread whose start was not observed, because it was
// earlier or its record was lost.
func (l *Tracker) unseen(pid, tid int, at int64) *life {
	p := l.processes[pid].at(at)
	if p == nil {
		p = &life{id: pid}
		l.processes[pid] = l.before(l.processes[pid], p)
	}
	t := &life{id: tid, process: p}
	if l.threads[tid].at(at) != nil {
		t.start = at // another life with this ID has ended
	}
	l.threads[tid] = l.before(l.threads[tid], t)
	return t
}

// before inserts a life among the lives of its ID, and returns the newest.
func (l *Tracker) before(newest, of *life) *life {
	if newest == nil || newest.start <= of.start {
		of.prev = newest
		return of
	}
	later := newest
	for later.prev != nil && later.prev.start > of.start {
		later = later.prev
	}
	of.prev, later.prev = later.prev, of
	return newest
}

// unnamed reports whether the name of the thread or process at a time is unknown.
func (of *life) unnamed(at int64) bool { return len(of.names) == 0 || of.names[0].At > at }

// begin sets the first name.
func (of *life) begin(name string) {
	of.names = append([]profile.Name{{At: of.start, Name: name}}, of.names...)
}

// Name returns the name of a thread at a time, or else its current name.
func (l *Tracker) Name(pid, tid int, at int64) string {
	t := l.threads[tid].at(at)
	if t == nil || t.process.id != pid {
		t = l.unseen(pid, tid, at)
	}
	if len(t.names) == 0 {
		t.begin(threadName(pid, tid))
	}
	for _, n := range slices.Backward(t.names) {
		if n.At <= at {
			return n.Name
		}
	}
	return t.names[0].Name
}

// unknownName is the name of a thread that has exited unobserved.
const unknownName = "[unknown]"

// threadName returns the current name of a thread, or unknownName.
func threadName(pid, tid int) string {
	comm, err := procfs.Thread(pid, tid).Comm()
	if err != nil {
		return unknownName
	}
	return comm
}

// Forget removes the threads and processes that exited before a time. No more events
// of them may follow.
func (l *Tracker) Forget(before int64) error {
	n := 0
	for ; n < len(l.ended) && l.ended[n].end < before; n++ {
		of := l.ended[n]
		if of.end == 0 {
			continue // still running
		}
		if of.process == nil {
			drop(l.processes, of)
			if of.recorded {
				l.renumber(of)
				l.Recorder.EndProcess(profile.ProcessID(of.number), of.end)
			}
			continue
		}
		drop(l.threads, of)
		if !of.recorded {
			continue
		}
		l.renumber(of)
		if err := l.Recorder.EndThread(profile.ThreadID(of.number), of.end); err != nil {
			return err
		}
	}
	l.ended = l.ended[n:]
	return nil
}

// drop removes a life from the lives of its ID.
func drop(newest map[int]*life, of *life) {
	later := newest[of.id]
	if later == of {
		if of.prev == nil {
			delete(newest, of.id)
		} else {
			newest[of.id] = of.prev
		}
		return
	}
	for later != nil && later.prev != of {
		later = later.prev
	}
	if later != nil {
		later.prev = of.prev
	}
}
