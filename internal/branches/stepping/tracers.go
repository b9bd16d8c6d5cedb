package stepping

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stopWait is how long a thread may take to stop before another tracer takes over,
	// and overtime how long a burst may exceed its deadline before that: the thread may
	// have no CPU, or be frozen.
	stopWait, overtime = 100 * time.Millisecond, time.Second
	// maxTracers is the number of threads that may be late in this way before stepping
	// pauses.
	maxTracers = 64
)

// tracers is the set of OS threads that trace. Each has at most one tracee, and no two
// trace threads of the same process. The latter prevents a deadlock: a thread in execve
// waits until all other threads of its process have ended and their tracers have reaped
// them, and attaching to a thread of that process blocks until then. A tracer with two
// threads of a process would wait for itself.
//
// Usually only one tracer is busy. The next takes over when a tracee is late.
type tracers struct {
	hold     time.Duration
	stopping func() bool
	jobs     chan *job
	number   int
	busy     map[int]*job // unfinished jobs, by process
}

func newTracers(hold time.Duration, stopping func() bool) *tracers {
	return &tracers{hold: hold, stopping: stopping, jobs: make(chan *job), busy: map[int]*job{}}
}

// free reports whether a thread of process pid may have a burst now.
func (ts *tracers) free(pid int) bool { return ts.busy[pid] == nil && len(ts.busy) < maxTracers }

// burst runs a burst of a thread if its process is free. It returns nil if the burst is
// late; collect delivers it then.
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
		if losesSteps {
			// The thread may run on, although it is attached. It stops for SIGCONT, which ptrace
			// reports.
			_ = unix.Tgkill(pid, tid, unix.SIGCONT)
		}
	}
	ts.busy[pid] = j
	return nil
}

// run is the main loop of a tracer.
func (ts *tracers) run() {
	// Only the OS thread that attached may trace. Its priority is its own.
	runtime.LockOSThread()
	prioritize()
	t := tracer{hold: ts.hold, stopping: ts.stopping}
	for j := range ts.jobs {
		j.done <- t.burst(j)
	}
}

// collect calls f with each job that was late and has finished.
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

// finish returns when the process may end. Tracees that have not stopped yet are detached
// by its end.
func (ts *tracers) finish() {
	for _, j := range ts.busy {
		if !j.giveUp() && j.phase.Load() == begun {
			<-j.done
		}
	}
}

// prioritize gives this OS thread the highest priority. Without CAP_SYS_NICE it has no
// effect.
func prioritize() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20) }
