package perfring

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/looks"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
)

const (
	// lookEvery is the time between two searches for threads that wait, and rest how long a thread has to wait until it is worth
	// a look, both for waits whose switches have a record.
	lookEvery = 5 * time.Millisecond
	rest      = time.Millisecond
	// maxRound limits the time of the looks of a round, and looksShare their part in the time of a CPU.
	maxRound   = 20 * time.Millisecond
	looksShare = 10
	// maxLooks limits the looks between two polls of the session, in bytes.
	maxLooks = 32 << 20
	// maxDue limits the waits that may become due.
	maxDue = 1 << 16
)

// lookout looks at threads that wait, once in each wait. It knows from the records of switches which do.
type lookout struct {
	look   func(pid, tid int) (looks.Look, error)
	latest map[int]lastSwitch // by thread
	// due are waits in the order in which they began, as far as the order of records is known.
	due []dueLook
	// next is when looks may go on, so that their share is kept.
	next time.Time
}

// lastSwitch is the last switch of a thread.
type lastSwitch struct {
	pid  int
	time uint64 // 0 if there was none
	// waits is set if the thread left its CPU to wait.
	waits bool
}

// dueLook is a thread whose wait began at a time.
type dueLook struct {
	tid  int
	time uint64
}

func newLookout(threads map[int]int) *lookout {
	l := &lookout{look: new(looks.Looker).Look, latest: map[int]lastSwitch{}}
	for tid, pid := range threads {
		l.latest[tid] = lastSwitch{pid: pid, waits: true} // perhaps; the look tells
		l.due = append(l.due, dueLook{tid: tid})
	}
	return l
}

// note notes what a record says about a thread. Records of several CPUs come in any order.
func (l *lookout) note(r perfevent.Record) {
	switch r := r.(type) {
	case perfevent.Switch:
		if last, known := l.latest[r.TID]; known && last.time > r.Time || r.TID <= 0 {
			return
		}
		waits := r.Out && !r.Preempted
		l.latest[r.TID] = lastSwitch{r.PID, r.Time, waits}
		if waits && len(l.due) < maxDue {
			l.due = append(l.due, dueLook{r.TID, r.Time})
		}
	case perfevent.Exit:
		delete(l.latest, r.TID)
	}
}

// round returns the threads to look at, those that wait longest first. It forgets waits that are over.
func (l *lookout) round(now uint64) (wait []dueLook) {
	left := l.due[:0]
	for i, d := range l.due {
		last := l.latest[d.tid]
		switch {
		case last.time != d.time || !last.waits:
		case d.time+uint64(rest) > now:
			left = append(left, l.due[i])
		default:
			wait = append(wait, d)
		}
	}
	l.due = left
	return wait
}

// run looks at threads, in the time that the share allows, and returns what it found and the threads that it left. The
// goroutine is locked to its OS thread.
func (l *lookout) run(wait []dueLook, pid func(tid int) int) (found []looks.Look, left []dueLook) {
	began, before := time.Now(), threadTime()
	for i, d := range wait {
		if time.Since(began) > maxRound {
			left = wait[i:]
			break
		}
		look, err := l.look(pid(d.tid), d.tid)
		switch {
		case err == nil:
			found = append(found, look)
		case errors.Is(err, looks.ErrRuns) && d.time == 0: // perhaps it waits the next time
			left = append(left, d)
		}
	}
	if len(wait) > 0 {
		l.next = time.Now().Add(looksShare * (threadTime() - before))
	}
	return found, left
}

// threadTime returns the CPU time of this OS thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// lookOut looks at threads that wait. The caller does not hold the lock. What it finds counts only if switches are still
// reported afterwards: they tell whether the thread ran meanwhile.
func (r *rings) lookOut() {
	l := r.lookout
	if l == nil || time.Now().Before(l.next) {
		return
	}
	r.mu.Lock()
	wait := l.round(monotonic.Now())
	pids := make(map[int]int, len(wait))
	for _, d := range wait {
		pids[d.tid] = l.latest[d.tid].pid
	}
	r.mu.Unlock()
	if len(wait) == 0 {
		return
	}
	found, left := l.run(wait, func(tid int) int { return pids[tid] })
	r.mu.Lock()
	defer r.mu.Unlock()
	l.due = append(left, l.due...)
	if r.ended {
		return
	}
	for i := range found {
		r.heldLooks += int64(found[i].Size())
		if r.heldLooks > maxLooks {
			return
		}
		r.fresh = append(r.fresh, found[i])
	}
}
