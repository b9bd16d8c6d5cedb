package stepping

import (
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/monotonic"
)

// maxRepeats is how many rounds of a string instruction are stepped through
// before the thread is let go: a long copy would take all of the burst.
const maxRepeats = 64

// maxPause is how long a thread stays stopped at most until that is noticed.
const maxPause = 200 * time.Microsecond

// job is an attempt at a burst of a thread.
type job struct {
	pid, tid int
	phase    atomic.Int32
	done     chan outcome // has room for the one outcome
}

// The phases of a job. From the second on, the process must not end before the
// job is done.
const (
	waiting int32 = iota // for the thread to stop
	begun                // the thread has stopped, and may be stepped
	givenUp              // it did not stop in time, and is let go when it does
)

// begin starts the burst, unless it was given up.
func (j *job) begin() bool { return j.phase.CompareAndSwap(waiting, begun) }

// giveUp gives the burst up, unless it has begun.
func (j *job) giveUp() bool { return j.phase.CompareAndSwap(waiting, givenUp) }

// outcome is how an attempt at a burst ended.
type outcome struct {
	// entries are the branches, the newest first, and ended is when the burst
	// was over, in ns of CLOCK_MONOTONIC.
	entries []bolt.Entry
	ended   uint64
	// held is how long the thread did not run free.
	held time.Duration
	// refused is why the thread cannot be stepped.
	refused error
	// stats is what was done.
	stats Stats
}

// tracer steps threads, one at a time. All of its methods must be called on one
// OS thread, its own, which has no other children.
type tracer struct {
	hold time.Duration // longest time to hold a thread

	// stopping reports that the process is asked to end.
	stopping func() bool

	out  outcome // of the current burst
	text [maxInstruction]byte

	tid      int       // the thread, if it may have been stepped
	mask     *uint64   // what it blocks, if that is changed
	stranded bool      // a SIGTRAP waits that another thread may be waiting for
	freed    time.Time // when a tracee was last let go, or had ended
}

// burst steps through branches of a running thread.
func (t *tracer) burst(j *job) outcome {
	t.out, t.tid, t.mask, t.stranded, t.freed = outcome{}, 0, nil, false, time.Time{}
	if err := seize(j.tid); err != nil {
		return outcome{refused: seizeError(j.tid, err)}
	}
	if ptrace(unix.PTRACE_INTERRUPT, j.tid, 0) != nil {
		// It has ended. Or it has executed a program, and has the number of
		// its process now.
		_ = ptrace(unix.PTRACE_INTERRUPT, j.pid, 0)
	}
	stop, ran := awaitStop(j)
	if stop.stopped() && j.begin() {
		t.out.refused = t.whileStopped(j, stop, time.Now().Add(t.hold))
		t.letGo()
		t.out.held = max(0, t.freed.Sub(ran))
		t.out.stats.Held, t.out.stats.LongestHold = t.out.held, t.out.held
		if t.stranded {
			t.wakeTaker(j.pid)
		}
	} else {
		t.letGo()
	}
	return t.out
}

// awaitStop waits for the thread to stop. That takes it no time of its own: one
// that has a processor stops at once, others when it is their turn or when an
// uninterruptible wait is over. If the job is given up before, or nothing is
// traced any more, there is no change. ran is when it had not stopped yet.
func awaitStop(j *job) (stop status, ran time.Time) {
	ran = time.Now()
	for pause := 5 * time.Microsecond; j.phase.Load() == waiting; pause = min(2*pause, maxPause) {
		looked := time.Now()
		stop, err := wait(unix.WNOHANG)
		if err != nil || !stop.none() {
			return stop, ran
		}
		ran = looked
		sleep(pause)
	}
	return status{}, ran
}

// whileStopped steps the thread, which has just stopped, if it can be.
func (t *tracer) whileStopped(j *job, stop status, deadline time.Time) (refused error) {
	switch {
	case !stop.event():
		t.out.stats.Signal++ // one came first
		return nil
	case stop.signal() != unix.SIGTRAP:
		return nil // stopped by SIGSTOP, and stays so
	case stop.pid != j.tid:
		return nil // it has executed a program
	}
	now, err := readSignals(j.pid, j.tid)
	if err != nil {
		return nil //nolint:nilerr // it is dying
	}
	if now.ignored&trapSignal != 0 {
		return errIgnoring
	}
	r, err := readRegisters(j.tid)
	switch {
	case err != nil:
		return nil //nolint:nilerr // it is dying
	case r.foreign:
		return errForeign
	case r.trapping:
		return errTrapping
	case r.restarting:
		t.out.stats.Sensitive++
		return nil
	case r.interrupted:
		// A call such as epoll_pwait has its own mask of signals until its
		// end, which the one that clearMask sets would replace.
		t.out.stats.Interrupted++
		return nil
	}
	// The kernel forces the trap of a step on a thread that blocks SIGTRAP, as
	// handlers of signals do: it takes the signal out of the mask and resets what
	// the program does at it, for good, and the next one kills the program. So the
	// thread does not block it for the time of the burst. If one waits already for
	// the thread to unblock it, or for another one to take it, there is no burst.
	if now.blocked&trapSignal != 0 &&
		((now.own|now.shared)&trapSignal != 0 || decode(readText(j.tid, r.pc, t.text[:]), r.pc).kind == sensitive) {
		t.out.stats.Sensitive++
		return nil
	}
	t.tid = j.tid
	t.clearMask()
	t.steps(j.tid, r.pc, deadline)
	t.out.ended = monotonic.Now() // while it cannot unmap what it ran yet
	t.out.stats.Bursts++
	t.out.stats.Records += uint64(len(t.out.entries))
	slices.Reverse(t.out.entries)
	return nil
}

// steps has the thread step until its burst is over. It leaves it stopped or
// ended.
func (t *tracer) steps(tid int, pc uint64, deadline time.Time) {
	stats := &t.out.stats
	for repeats := 0; ; {
		switch {
		case t.stopping() || !time.Now().Before(deadline):
			stats.Deadline++
			return
		case len(t.out.entries) >= MaxBranches:
			stats.Full++
			return
		case repeats > maxRepeats:
			stats.Repeated++
			return
		}
		in := decode(readText(tid, pc, t.text[:]), pc)
		if in.kind == sensitive {
			stats.Sensitive++
			return
		}
		to, ok := t.step(tid)
		if !ok {
			stats.Signal++
			return
		}
		stats.Steps++
		switch in.step(pc, to) {
		case taken:
			t.out.entries = append(t.out.entries, bolt.Entry{From: pc, To: to})
			repeats = 0
		case straight:
			repeats = 0
		case repeated:
			repeats++
		case moved:
			stats.Moved++
			return
		}
		pc = to
	}
}

// step lets the thread execute one instruction and returns where it is then. It
// is not ok if the thread has stopped for something else, before or after the
// instruction, or has ended.
func (t *tracer) step(tid int) (pc uint64, ok bool) {
	if ptrace(unix.PTRACE_SINGLESTEP, tid, 0) != nil {
		return 0, false
	}
	stop, err := wait(0)
	if err != nil || !stop.stopped() || stop.event() || stop.pid != tid || !isStepOf(stop) {
		return 0, false
	}
	pc, err = readPC(tid)
	return pc, err == nil
}

// isStepOf reports whether the stop, of a thread that has been stepped, is for
// the trap of the step, and not for a SIGTRAP of the program's own.
func isStepOf(stop status) bool {
	if stop.signal() != unix.SIGTRAP {
		return false
	}
	info, err := deliveredInfo(stop.pid)
	return err == nil && info.isStep()
}

// letGo lets go of the thread as soon as it stops, with the signal that it has
// stopped for. It returns when this OS thread has no tracee any more. There may
// be others: what a thread clones with CLONE_PTRACE while it is traced.
func (t *tracer) letGo() {
	for {
		stop, err := wait(0)
		if err != nil {
			return
		}
		t.freed = time.Now()
		if stop.ended() {
			reap(stop.pid)
			continue
		}
		mine := t.tid == stop.pid
		var signal unix.Signal
		if !stop.event() && !(mine && isStepOf(stop)) {
			signal = stop.signal()
		}
		request := unix.PTRACE_DETACH
		if mine {
			request = t.release()
		}
		if ptrace(request, stop.pid, uintptr(signal)) != nil {
			sleep(maxPause) // it was killed, and ends
		}
	}
}

// release returns the request that lets go of the thread, which may have been
// stepped and is to get a signal, and gives it its own mask of signals again. But
// if the thread must stop again before, the request is PTRACE_CONT.
//
// When a thread stops for something else than its step, the trap of the step
// may wait in its queue, since ptrace's own stops and those of SIGSTOP come
// before signals. It would kill the program. So the thread goes on, with its
// trap flag cleared, until it stops for that trap: it cannot get back to the
// program's code before.
func (t *tracer) release() (request int) {
	if trap, found := ownQueue.trap(t.tid); found && trap.isStep() {
		return unix.PTRACE_CONT
	}
	if t.mask != nil {
		_, t.stranded = sharedQueue.trap(t.tid)
		t.restoreMask()
	}
	return unix.PTRACE_DETACH
}

// wakeTaker wakes a thread of process pid that waits for a SIGTRAP. The kernel had
// chosen the one that was stepped for it, and woken nobody else; but that one
// blocks the signal again.
func (t *tracer) wakeTaker(pid int) {
	stepped := t.tid
	t.tid = 0
	tids, err := threads(pid)
	if err != nil {
		return // it has ended
	}
	for _, tid := range tids {
		now, err := readSignals(pid, tid)
		if err == nil && now.shared&trapSignal == 0 {
			return // it was taken
		}
		if err != nil || tid == stepped || now.blocked&trapSignal != 0 || seize(tid) != nil {
			continue
		}
		_ = ptrace(unix.PTRACE_INTERRUPT, tid, 0)
		t.letGo()
	}
}

// clearMask sees to it that the thread does not block SIGTRAP, until restoreMask.
// Errors mean that it is dying.
func (t *tracer) clearMask() {
	var mask uint64
	if t.mask != nil || signalMask(unix.PTRACE_GETSIGMASK, t.tid, &mask) != nil || mask&trapSignal == 0 {
		return
	}
	t.mask = &mask
	without := mask &^ trapSignal
	_ = signalMask(unix.PTRACE_SETSIGMASK, t.tid, &without)
}

// restoreMask gives the thread the mask that it had before clearMask.
func (t *tracer) restoreMask() {
	if t.mask != nil {
		_ = signalMask(unix.PTRACE_SETSIGMASK, t.tid, t.mask)
		t.mask = nil
	}
}

// sleep sleeps on this OS thread. time.Sleep would wake up another first.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // cut short: so what
}
