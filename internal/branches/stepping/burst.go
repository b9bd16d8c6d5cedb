package stepping

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/tracing"
)

// maxRepeats is the maximum number of iterations of a string instruction to step through.
// A long copy would take the whole burst.
const maxRepeats = 64

// maxPause bounds the time until the stop of a thread is noticed.
const maxPause = 200 * time.Microsecond

// job is an attempt at a burst.
type job struct {
	pid, tid int
	phase    atomic.Int32
	done     chan outcome // buffered for the one outcome
}

// The phases of a job. From the second phase on, the process must not end before the job
// is done.
const (
	waiting int32 = iota // for the thread to stop
	begun                // the thread has stopped and may be stepped
	givenUp              // it did not stop in time, and is detached when it does
)

// begin starts the burst unless it was given up.
func (j *job) begin() bool { return j.phase.CompareAndSwap(waiting, begun) }

// giveUp gives up the burst unless it has begun.
func (j *job) giveUp() bool { return j.phase.CompareAndSwap(waiting, givenUp) }

// outcome is the result of a job.
type outcome struct {
	// entries holds the branches, newest first. ended is the end of the burst, in ns of
	// CLOCK_MONOTONIC.
	entries []bolt.Entry
	ended   uint64
	// held is how long the thread did not run freely.
	held time.Duration
	// refused is why the thread cannot be stepped.
	refused error
	// stats counts the work.
	stats Stats
}

// tracer steps threads, one at a time. All of its methods must be called on the same OS
// thread, which has no other children.
type tracer struct {
	hold time.Duration // maximum time to hold a thread

	// stopping reports whether the process was asked to end.
	stopping func() bool

	out  outcome // of the current burst
	text [maxInstruction]byte

	pid, tid int         // the thread that may have been stepped
	pc       uint64      // its program counter before its last step
	in       instruction // the instruction there
	mask     *uint64     // its original signal mask, if changed
	stranded bool        // a SIGTRAP is pending that another thread may wait for
	freed    time.Time   // when the last tracee was detached or ended
}

// burst steps a running thread through a number of branches.
func (t *tracer) burst(j *job) outcome {
	t.out, t.tid, t.mask, t.stranded, t.freed = outcome{}, 0, nil, false, time.Time{}
	if err := tracing.Seize(j.tid); err != nil {
		return outcome{refused: seizeError(j.tid, err)}
	}
	if tracing.Interrupt(j.tid) != nil {
		// The thread has ended, or has executed a program and now has its process's ID.
		_ = tracing.Interrupt(j.pid)
	}
	stop, ran := awaitStop(j)
	if stop.Stopped() && j.begin() {
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

// awaitStop waits for the thread to stop. Stopping takes no CPU time: a running thread
// stops at once, others stop when they are scheduled or when an uninterruptible wait
// ends. It returns no change if the job is given up first or the tracee is gone. ran is
// the last time before the stop was noticed.
func awaitStop(j *job) (stop tracing.Change, ran time.Time) {
	ran = time.Now()
	for pause := 5 * time.Microsecond; j.phase.Load() == waiting; pause = min(2*pause, maxPause) {
		looked := time.Now()
		stop, err := tracing.Wait(0, unix.WNOHANG)
		if err != nil || !stop.None() {
			return stop, ran
		}
		ran = looked
		sleep(pause)
	}
	return tracing.Change{}, ran
}

// whileStopped steps the thread, which has just stopped, if possible.
func (t *tracer) whileStopped(j *job, stop tracing.Change, deadline time.Time) (refused error) {
	switch {
	case !stop.Event():
		t.out.stats.Signal++ // a signal came first
		return nil
	case stop.Signal() != unix.SIGTRAP:
		return nil // stopped by SIGSTOP; it stays stopped
	case stop.TID != j.tid:
		return nil // it has executed a program
	}
	now, err := procfs.Thread(j.pid, j.tid).Status()
	if err != nil {
		return nil //nolint:nilerr // it is dying
	}
	if now.SigIgn&trapSignal != 0 {
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
		// A call such as epoll_pwait has its own signal mask until it returns, which
		// clearMask would overwrite.
		t.out.stats.Interrupted++
		return nil
	}
	// If a thread blocks SIGTRAP, as signal handlers do, the kernel forces the trap of a
	// step on it: it unblocks the signal and resets its action for good, and the next
	// SIGTRAP kills the program. So the signal is unblocked during the burst. There is no
	// burst if one is pending already: it is the program's, but may look like the trap of a step.
	if (now.SigPnd|now.ShdPnd)&trapSignal != 0 ||
		now.SigBlk&trapSignal != 0 && decode(tracing.Read(j.tid, r.pc, t.text[:]), r.pc).kind == sensitive {
		t.out.stats.Sensitive++
		return nil
	}
	t.pid, t.tid = j.pid, j.tid
	t.clearMask()
	t.steps(j.tid, r.pc, deadline)
	t.out.ended = monotonic.Now() // before the thread can unmap the code that it ran
	t.out.stats.Bursts++
	t.out.stats.Records += uint64(len(t.out.entries))
	slices.Reverse(t.out.entries)
	return nil
}

// steps single-steps the thread until the end of the burst, and leaves it stopped or ended.
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
		in := decode(tracing.Read(tid, pc, t.text[:]), pc)
		if in.kind == sensitive {
			stats.Sensitive++
			return
		}
		t.pc, t.in = pc, in
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

// step lets the thread execute one instruction and returns its new program counter. ok is
// false if the thread has stopped for another reason, before or after the instruction, or
// has ended.
func (t *tracer) step(tid int) (pc uint64, ok bool) {
	if tracing.Call(unix.PTRACE_SINGLESTEP, tid, 0) != nil {
		return 0, false
	}
	stop, err := tracing.Wait(0, 0)
	if err != nil || !stop.Stopped() || stop.Event() || stop.TID != tid || !t.hasStepped(stop) {
		return 0, false
	}
	pc, err = readPC(tid)
	return pc, err == nil
}

// hasStepped reports whether the stepped thread has stopped for the trap of its step, rather than
// for the program's own SIGTRAP.
func (t *tracer) hasStepped(stop tracing.Change) bool {
	if stop.Signal() != unix.SIGTRAP {
		return false
	}
	info, err := tracing.Delivered(stop.TID)
	return err == nil && t.isStep(info)
}

// isStep reports whether a SIGTRAP for the stopped thread, which was not pending before the burst,
// is the trap of its step.
func (t *tracer) isStep(trap tracing.Info) bool {
	switch trap.Code {
	case trapTrace, trapBreakpoint:
		return true
	case fromUser:
	default:
		return false
	}
	now, err := procfs.Process(t.pid).Status()
	if err != nil || int(trap.PID) != cmp.Or(now.NSPID, t.pid) {
		return false // sent by another process
	}
	// Another thread may have sent it. If so, this thread has stopped before the instruction: the
	// trap of a step is the thread's own, and comes before signals for the process.
	pc, err := readPC(t.tid)
	return err == nil && (pc != t.pc || t.in.repeats(pc))
}

// letGo detaches from the thread as soon as it stops, passing on the signal for which it
// has stopped. It returns when this OS thread has no tracees. There may be several:
// threads cloned with CLONE_PTRACE while traced.
func (t *tracer) letGo() {
	for {
		stop, err := tracing.Wait(0, 0)
		if err != nil {
			return
		}
		t.freed = time.Now()
		if stop.Ended() {
			tracing.Reap(stop.TID)
			continue
		}
		mine := t.tid == stop.TID
		var signal unix.Signal
		if !stop.Event() && !(mine && t.hasStepped(stop)) {
			signal = stop.Signal()
		}
		request := unix.PTRACE_DETACH
		if mine {
			request = t.release()
		}
		if tracing.Call(request, stop.TID, uintptr(signal)) != nil {
			sleep(maxPause) // it was killed and is ending
		}
	}
}

// release restores the signal mask of the thread, which may have been stepped, and
// returns the request that detaches from it. If the thread must stop once more first, the
// request is PTRACE_CONT.
//
// If a thread stops for a reason other than its step, the trap of the step may be
// pending, since ptrace's own stops and SIGSTOP come before signals. The trap would kill
// the program. So the thread continues with its trap flag cleared until it stops for that
// trap: it cannot return to the program's code before.
func (t *tracer) release() (request int) {
	if trap, found := ownQueue.trap(t.tid); found && t.isStep(trap) {
		return unix.PTRACE_CONT
	}
	if t.mask != nil {
		_, t.stranded = sharedQueue.trap(t.tid)
		t.restoreMask()
	}
	return unix.PTRACE_DETACH
}

// wakeTaker wakes a thread of process pid that waits for a SIGTRAP. The kernel chose the
// stepped thread to take the signal and woke no other, but the stepped thread blocks it
// again.
func (t *tracer) wakeTaker(pid int) {
	stepped := t.tid
	t.tid = 0
	tids, err := procfs.Threads(pid)
	if err != nil {
		return // the thread has ended
	}
	for _, tid := range tids {
		now, err := procfs.Thread(pid, tid).Status()
		if err == nil && now.ShdPnd&trapSignal == 0 {
			return // the signal was taken
		}
		if err != nil || tid == stepped || now.SigBlk&trapSignal != 0 || tracing.Seize(tid) != nil {
			continue
		}
		_ = tracing.Interrupt(tid)
		t.letGo()
	}
}

// clearMask unblocks SIGTRAP in the thread until restoreMask. Errors mean that it is
// dying.
func (t *tracer) clearMask() {
	var mask uint64
	if t.mask != nil || signalMask(unix.PTRACE_GETSIGMASK, t.tid, &mask) != nil || mask&trapSignal == 0 {
		return
	}
	t.mask = &mask
	without := mask &^ trapSignal
	_ = signalMask(unix.PTRACE_SETSIGMASK, t.tid, &without)
}

// restoreMask restores the mask from before clearMask.
func (t *tracer) restoreMask() {
	if t.mask != nil {
		_ = signalMask(unix.PTRACE_SETSIGMASK, t.tid, t.mask)
		t.mask = nil
	}
}

// sleep sleeps on this OS thread.
func sleep(d time.Duration) { tracing.Sleep(int64(d)) }
