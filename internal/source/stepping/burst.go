package stepping

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/monotonic"
)

// maxRepeats is how many rounds of a string instruction are stepped through
// before the thread is let go: a long copy would take all of the burst.
const maxRepeats = 64

// stopWait is how long a thread may take to stop before others have their
// turn, maxPause how long it stays stopped at most until that is noticed.
const (
	stopWait = 100 * time.Millisecond
	maxPause = 200 * time.Microsecond
)

// tracer steps threads. All of its methods must be called on one OS thread.
type tracer struct {
	hold time.Duration // longest time to hold a thread

	// stopping reports that the process is asked to end.
	stopping func() bool

	entries []bolt.Entry // of the current burst, the oldest first
	ended   uint64       // when the last burst did, in ns of CLOCK_MONOTONIC
	text    [maxInstruction]byte
	stats   Stats
}

// outcome is how an attempt at a burst ended.
type outcome struct {
	// held is how long the thread did not run free.
	held time.Duration
	// attached is set if the thread is still a tracee: it did not stop in
	// time, or is dying. It must be given to settle until that has ended.
	attached bool
	// gone is set if the thread has exited.
	gone bool
	// refused is why the thread cannot be stepped.
	refused error
}

// burst steps through branches of running thread tid and leaves them in
// t.entries.
func (t *tracer) burst(tid int) outcome {
	t.entries = t.entries[:0]
	if err := ptrace(unix.PTRACE_SEIZE, tid, 0); err != nil {
		refused := seizeError(tid, err)
		return outcome{gone: errors.Is(refused, errGone), refused: refused}
	}
	if err := ptrace(unix.PTRACE_INTERRUPT, tid, 0); err != nil {
		return t.settle(tid)
	}
	stop, ran, err := awaitStop(tid)
	switch {
	case err != nil || stop.ended():
		return outcome{gone: true}
	case stop.none:
		return outcome{attached: true}
	}
	out := t.whileStopped(tid, stop, time.Now().Add(t.hold))
	out.held = time.Since(ran)
	t.stats.Held += out.held
	t.stats.LongestHold = max(t.stats.LongestHold, out.held)
	return out
}

// whileStopped steps the thread, which has just stopped, and lets it go.
func (t *tracer) whileStopped(tid int, stop status, deadline time.Time) outcome {
	switch {
	case !stop.event():
		t.stats.Signal++ // one came first
		return t.detach(tid, stop.StopSignal())
	case stop.StopSignal() != unix.SIGTRAP:
		return t.detach(tid, 0) // stopped by SIGSTOP, and stays so
	}
	r, err := readRegisters(tid)
	switch {
	case err != nil:
		return t.settle(tid)
	case r.foreign:
		out := t.detach(tid, 0)
		out.refused = errForeign
		return out
	case r.trapping:
		out := t.detach(tid, 0)
		out.refused = errTrapping
		return out
	case r.restarting:
		t.stats.Sensitive++
		return t.detach(tid, 0)
	case r.interrupted:
		t.stats.Interrupted++
	}
	signal := t.unblocked(tid, func() unix.Signal { return t.steps(tid, r.pc, deadline) })
	t.ended = monotonic.Now() // while it cannot unmap what it ran yet
	t.stats.Bursts++
	t.stats.Records += uint64(len(t.entries))
	slices.Reverse(t.entries)
	return t.detach(tid, signal)
}

// unblocked calls steps while the thread does not block SIGTRAP. The kernel
// forces the trap of a step on a thread that does, as handlers of signals do:
// it takes the signal out of the mask and resets what the program does at it,
// for good, and the next one kills the program.
func (t *tracer) unblocked(tid int, steps func() unix.Signal) unix.Signal {
	var mask uint64
	if err := signalMask(unix.PTRACE_GETSIGMASK, tid, &mask); err != nil {
		return 0 // it is dying; detach finds out
	}
	if mask&trapSignal == 0 {
		return steps()
	}
	without := mask &^ trapSignal
	if err := signalMask(unix.PTRACE_SETSIGMASK, tid, &without); err != nil {
		return 0
	}
	signal := steps()
	// A signal that was pending waits again then.
	_ = signalMask(unix.PTRACE_SETSIGMASK, tid, &mask)
	return signal
}

// steps has the thread step until its burst is over, and returns the signal to
// deliver to it.
func (t *tracer) steps(tid int, pc uint64, deadline time.Time) unix.Signal {
	for repeats := 0; ; {
		switch {
		case t.stopping() || !time.Now().Before(deadline):
			t.stats.Deadline++
			return 0
		case len(t.entries) >= MaxBranches:
			t.stats.Full++
			return 0
		case repeats > maxRepeats:
			t.stats.Repeated++
			return 0
		}
		in := decode(readText(tid, pc, t.text[:]), pc)
		if in.kind == sensitive {
			t.stats.Sensitive++
			return 0
		}
		to, signal, err := t.step(tid)
		switch {
		case err != nil:
			return 0 // it is dying; detach finds out
		case signal != 0:
			t.stats.Signal++
			return signal
		}
		t.stats.Steps++
		switch in.step(pc, to) {
		case taken:
			t.entries = append(t.entries, bolt.Entry{From: pc, To: to})
			repeats = 0
		case straight:
			repeats = 0
		case repeated:
			repeats++
		case moved:
			t.stats.Moved++
			return 0
		}
		pc = to
	}
}

// errStopped means that a thread has stopped for something else than its
// step.
var errStopped = errors.New("stopped for something else")

// step lets the thread execute one instruction and returns where it is then,
// or the signal that it has got instead.
func (t *tracer) step(tid int) (pc uint64, signal unix.Signal, err error) {
	if err := ptrace(unix.PTRACE_SINGLESTEP, tid, 0); err != nil {
		return 0, 0, err
	}
	stop, err := wait(tid, 0)
	switch {
	case err != nil:
		return 0, 0, err
	case !stop.stopped() || stop.event():
		return 0, 0, errStopped
	case stop.StopSignal() != unix.SIGTRAP:
		return 0, stop.StopSignal(), nil
	}
	code, err := signalCode(tid)
	if err == nil && code != trapTrace {
		return 0, unix.SIGTRAP, nil // the program's own
	}
	if err == nil {
		pc, err = readPC(tid)
	}
	return pc, 0, err
}

// detach lets a stopped thread go, with a signal if that is not 0.
func (t *tracer) detach(tid int, signal unix.Signal) outcome {
	if err := ptrace(unix.PTRACE_DETACH, tid, uintptr(signal)); err != nil {
		return t.settle(tid)
	}
	return outcome{}
}

// settle lets an attached thread go if it has stopped or exited by now.
func (t *tracer) settle(tid int) outcome {
	stop, err := wait(tid, unix.WNOHANG)
	switch {
	case err != nil || stop.ended():
		// Reaped, so that its parent learns of it; or another thread's
		// execve has taken its place.
		return outcome{gone: true}
	case stop.none:
		return outcome{attached: true}
	}
	var signal unix.Signal
	if !stop.event() {
		signal = stop.StopSignal()
	}
	if ptrace(unix.PTRACE_DETACH, tid, uintptr(signal)) != nil {
		return outcome{attached: true} // killed meanwhile
	}
	return outcome{}
}

// awaitStop waits for the thread to stop. That takes it no time of its own: one
// that has a processor stops at once, others when it is their turn or when an
// uninterruptible wait is over. If that is not soon, there is no change. ran is
// when it had not stopped yet.
func awaitStop(tid int) (stop status, ran time.Time, err error) {
	ran = time.Now()
	deadline := ran.Add(stopWait)
	for pause := 5 * time.Microsecond; ; pause = min(2*pause, maxPause) {
		looked := time.Now()
		stop, err = wait(tid, unix.WNOHANG)
		if err != nil || !stop.none || !looked.Before(deadline) {
			return stop, ran, err
		}
		ran = looked
		sleep(pause)
	}
}

// sleep sleeps on this OS thread. time.Sleep would wake up another first.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // cut short: so what
}
