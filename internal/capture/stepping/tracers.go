package stepping

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stopWait is how long a thread may take to stop before others have their
	// turn, and overtime how long a burst may last beyond its deadline until
	// they have: the thread may have no processor, or be frozen.
	stopWait, overtime = 100 * time.Millisecond, time.Second
	// maxTracers is how many processes may keep others waiting so, before
	// nothing more is stepped.
	maxTracers = 64
)

// tracers are the OS threads that trace. Each has one tracee at a time, and no
// two have threads of the same process. That matters: a thread that executes a
// program waits until all others of its process have ended and their tracers
// have taken note, and who wants to attach to a thread of that process waits for
// as long. A tracer with two threads of the process would wait for itself.
//
// Usually just one has something to do. The next takes over when a tracee keeps
// one waiting.
type tracers struct {
	hold     time.Duration
	stopping func() bool
	jobs     chan *job
	number   int
	busy     map[int]*job // the jobs that are not done, by process
}

func newTracers(hold time.Duration, stopping func() bool) *tracers {
	return &tracers{hold: hold, stopping: stopping, jobs: make(chan *job), busy: map[int]*job{}}
}

// free reports whether a thread of process pid may have a burst now.
func (ts *tracers) free(pid int) bool { return ts.busy[pid] == nil && len(ts.busy) < maxTracers }

// burst gives a thread a burst, if its process is free. The outcome is nil if
// it is late; collect has it then.
func (ts *tracers) burst(pid, tid int) *outcome {
	j := &job{pid: pid, tid: tid, done: make(chan outcome, 1)}
	if len(ts.busy) == ts.number {
		ts.number++
		go ts.run()
	}
	ts.jobs <- j
	timer := time.NewTimer(stopWait)
	defer timer.Stop()
	select {
	case out := <-j.done:
		return &out
	case <-timer.C:
	}
	if !j.giveUp() {
		timer.Reset(ts.hold + overtime)
		select {
		case out := <-j.done:
			return &out
		case <-timer.C:
		}
	}
	ts.busy[pid] = j
	return nil
}

// run is the life of a tracer.
func (ts *tracers) run() {
	// The thread that is to trace, and only it may then. Its priority is its
	// own.
	runtime.LockOSThread()
	prioritize()
	t := tracer{hold: ts.hold, stopping: ts.stopping}
	for j := range ts.jobs {
		j.done <- t.burst(j)
	}
}

// collect calls f with each job that was late and is done now.
func (ts *tracers) collect(f func(*job, outcome)) {
	for pid, j := range ts.busy {
		select {
		case out := <-j.done:
			delete(ts.busy, pid)
			f(j, out)
		default:
		}
	}
}

// finish returns when the process may end. What was attached to but has not
// stopped yet is let go with it.
func (ts *tracers) finish() {
	for _, j := range ts.busy {
		if !j.giveUp() && j.phase.Load() == begun {
			<-j.done
		}
	}
}

// prioritize makes this OS thread one of the last to wait for a processor.
// Without CAP_SYS_NICE it stays as it is.
func prioritize() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20) }
