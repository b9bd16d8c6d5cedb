// Package threads knows when the machine's threads and processes began and ended, what
// they were called meanwhile, and how much memory processes had, for a recording in
// time.
package threads

import (
	"fmt"
	"slices"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
	"fulgur/internal/profile/timeline"
)

// Tracker follows the machine's threads. A thread becomes part of a recording with the first
// event in it, with all names that it has had. The tracker handles the same records as
// the table of processes, and like that one answers questions about the time before the last of
// them.
type Tracker struct {
	// Recorder gets what is told. It is to be set before something happens in a
	// thread.
	Recorder *timeline.Recorder

	threads, processes map[int]*life // the newest of each number
	ended              []*life       // in the order of their ends, until they are forgotten
	// recorded are the processes that are part of the recording and run.
	recorded []*life
	looked   int64 // when their memory was looked at
}

// life is that of a thread, or of a process. All times are in ns.
type life struct {
	id         int
	process    *life          // of a thread; nil for a process
	start, end int64          // 0 if they were not seen
	names      []profile.Name // in the order of their times
	told       int            // how many of them are recorded
	prev       *life          // what had the number before
	recorded   bool
	// number is the recording's: a ThreadID, or a ProcessID of a process.
	number uint32
	// Of a process: whether something happened to it since its resident memory
	// was looked at, and how much that was, in bytes.
	ran      bool
	resident int64
}

// New returns lives of which none was seen yet.
func New() *Tracker { return &Tracker{threads: map[int]*life{}, processes: map[int]*life{}} }

// HandleRecord takes note of a record.
func (l *Tracker) HandleRecord(r perfevent.Record) {
	at := int64(r.When())
	switch r := r.(type) {
	case perfevent.Fork:
		if r.PID <= 0 || r.TID <= 0 {
			return // foreign to our pid namespace
		}
		var names []profile.Name
		if parent := l.newest(r.PPID, r.PTID, at); parent != nil {
			if len(parent.names) == 0 { // it got its name before anybody listened
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
		if r.Exec { // perhaps by another thread, after the first one's end
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
		// What ends after the first thread are the others; who is last, no record
		// tells.
		if r.TID == r.PID {
			t.process.end = at
			l.ended = append(l.ended, t.process)
		} else if t.process.end != 0 {
			t.process.end = at
		}
	}
}

// newest returns the life of a thread that a record is of, nil if the thread is
// foreign to our pid namespace.
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
	if of.recorded {
		l.record(of)
	}
}

// record hands new names on to the recording.
func (l *Tracker) record(of *life) {
	for _, n := range of.names[of.told:] {
		if of.process != nil {
			l.Recorder.NameThread(profile.ThreadID(of.number), n.At, n.Name)
		} else {
			l.Recorder.NameProcess(profile.ProcessID(of.number), n.At, n.Name)
		}
	}
	of.told = len(of.names)
}

// at returns the life that a number stood for at a time, nil if none was seen.
func (of *life) at(at int64) *life {
	for of != nil && of.start > at {
		of = of.prev
	}
	return of
}

// Thread returns the recording's number of a thread to which something happened
// at a time.
func (l *Tracker) Thread(pid, tid int, at int64) profile.ThreadID {
	t := l.threads[tid].at(at)
	if t == nil || t.process.id != pid {
		t = l.unseen(pid, tid, at)
	}
	t.process.ran = true
	if t.recorded {
		return profile.ThreadID(t.number)
	}
	if p := t.process; !p.recorded {
		if p.unnamed(at) {
			p.begin(threadName(pid, pid))
		}
		p.recorded, p.number = true, uint32(l.Recorder.Process(pid, p.start))
		l.record(p)
		l.recorded = append(l.recorded, p)
	}
	if t.unnamed(at) {
		t.begin(threadName(pid, tid))
	}
	t.recorded, t.number = true, uint32(l.Recorder.Thread(profile.ProcessID(t.process.number), tid, t.start))
	l.record(t)
	return profile.ThreadID(t.number)
}

// Meet takes note of the threads that processes have now, nil for all processes, with
// their names: when something is told of them, it may have been the last.
func (l *Tracker) Meet(pids []int) error {
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

// unseen returns a new life of a thread whose beginning was not seen: it was there
// before, or a record was lost.
func (l *Tracker) unseen(pid, tid int, at int64) *life {
	p := l.processes[pid].at(at)
	if p == nil {
		p = &life{id: pid}
		l.processes[pid] = l.before(l.processes[pid], p)
	}
	t := &life{id: tid, process: p}
	if l.threads[tid].at(at) != nil {
		t.start = at // another's number is its own by now
	}
	l.threads[tid] = l.before(l.threads[tid], t)
	return t
}

// before puts a life among those of its number, and returns the newest.
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

// unnamed reports whether it is not known what the thread or process was called at
// a time.
func (of *life) unnamed(at int64) bool { return len(of.names) == 0 || of.names[0].At > at }

// begin tells the name that it had at first.
func (of *life) begin(name string) {
	of.names = append([]profile.Name{{At: of.start, Name: name}}, of.names...)
}

// Name returns what a thread was called at a time, if it is not known otherwise as
// the kernel tells now.
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

// unknownName is the name of a thread that is gone.
const unknownName = "[unknown]"

// threadName returns what the kernel calls a thread now, or that this is not known.
func threadName(pid, tid int) string {
	comm, err := procfs.Thread(pid, tid).Comm()
	if err != nil {
		return unknownName
	}
	return comm
}

// Forget ends those that exited before a time, of which nothing comes any more.
func (l *Tracker) Forget(before int64) error {
	n := 0
	for ; n < len(l.ended) && l.ended[n].end < before; n++ {
		of := l.ended[n]
		if of.end == 0 {
			continue // it went on
		}
		if of.process == nil {
			drop(l.processes, of)
			if of.recorded {
				l.Recorder.EndProcess(profile.ProcessID(of.number), of.end)
			}
			continue
		}
		drop(l.threads, of)
		if !of.recorded {
			continue
		}
		if err := l.Recorder.EndThread(profile.ThreadID(of.number), of.end); err != nil {
			return err
		}
	}
	l.ended = l.ended[n:]
	return nil
}

// drop takes a life out of those of its number.
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
