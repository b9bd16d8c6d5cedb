package stepping

import (
	"math/rand/v2"
	"time"

	"fulgur/internal/linux/procfs"
)

// thread is a thread of the target and its budget.
type thread struct {
	pid, tid int
	start    uint64 // start time, in clock ticks since boot

	// free is the CPU time used outside of bursts since the thread is known, and ran all
	// CPU time used as of the last visit. held is the total time of its bursts.
	free, ran, held time.Duration
	// saved is the budget of time for bursts, and wait the budget needed for the next
	// burst.
	saved, wait time.Duration
	// refused is set if it cannot be stepped, and reported if the parent knows of a
	// refusal.
	refused, reported bool
}

// state is a thread's state from /proc.
type state struct {
	running bool
	start   uint64 // in clock ticks since boot
	ran     time.Duration
}

// readState returns the state of thread tid of process pid.
func readState(pid, tid int) (state, error) {
	stat, err := procfs.Thread(pid, tid).Stat()
	if err != nil {
		return state{}, err
	}
	s := state{running: stat.State == 'R', start: stat.Start, ran: time.Duration(stat.CPU) * procfs.Tick}
	if s.running {
		if ran, err := procfs.Thread(pid, tid).SchedCPU(); err == nil && ran > 0 {
			s.ran = ran // more precise; some kernels lack it
		}
	}
	return s, nil
}

// slowdown returns the time of the thread's bursts relative to its own.
func (t *thread) slowdown() float64 {
	if t.free <= 0 {
		return 0
	}
	return float64(t.held) / float64(t.free)
}

// observe adds the CPU time that the thread has used outside of bursts to its budget, in
// proportion to the allowed overhead (0.1 means ten percent). The budget is limited to a
// burst or two: a thread that the stepper reaches rarely, because there are many, must
// not make up for it later by standing still.
func (t *thread) observe(s state, overhead float64) {
	free := max(0, s.ran-t.ran)
	t.ran = s.ran
	t.free += free
	t.saved = min(t.saved+time.Duration(overhead*float64(free)), 2*t.wait)
}

// charge subtracts a burst from the budget and draws the budget required for the next
// one: between once and twice the average cost of a burst, so that bursts do not fall
// into step with periodic behavior of the program.
func (t *thread) charge(held, average time.Duration) {
	t.held += held
	t.saved -= held
	if s, err := readState(t.pid, t.tid); err == nil {
		t.ran = max(t.ran, s.ran) // CPU time within the burst is not free
	}
	t.wait = jitter(max(average, minWait))
}

// minWait is the minimum budget for a burst, however short bursts are: a stop costs
// more than its duration, and may cut a system call short.
const minWait = time.Millisecond

func jitter(average time.Duration) time.Duration {
	return average + rand.N(average+1)
}
