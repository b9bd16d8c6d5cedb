package stepping

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

// thread is one of the target's and its budget.
type thread struct {
	pid, tid int
	start    uint64 // when it started, in clock ticks since boot

	// free is the CPU time it has used outside of bursts since it is known,
	// ran all that it had used when last looked at; held is the time that
	// bursts took it.
	free, ran, held time.Duration
	// saved is the time that it may be held now, and wait what it must be
	// for the next burst.
	saved, wait time.Duration
	// refused is set if it cannot be stepped, told if the parent knows of a
	// refusal.
	refused, told bool
}

// state is what /proc says of a thread.
type state struct {
	running bool
	start   uint64 // in clock ticks since boot
	ran     time.Duration
}

// tick is the unit of CPU time in /proc/TID/stat, USER_HZ: 100 a second on
// all of Linux.
const tick = 10 * time.Millisecond

// readState returns the state of thread tid of process pid.
func readState(pid, tid int) (state, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	if err != nil {
		return state{}, err
	}
	s, err := parseState(b)
	if err != nil || !s.running {
		return s, err
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid)); err == nil {
		// Time on the CPU in ns, time waiting for it, slices. Some kernels
		// are built without; ticks must do then.
		first, _, _ := bytes.Cut(b, []byte{' '})
		if ns, err := strconv.ParseInt(string(first), 10, 64); err == nil && ns > 0 {
			s.ran = time.Duration(ns)
		}
	}
	return s, nil
}

// parseState reads the line of /proc/TID/stat, see proc_pid_stat(5). The name
// in it may hold anything; the other fields are counted from its end.
func parseState(stat []byte) (state, error) {
	const afterName = 3 // number of the field after the name
	const utime, stime, start = 14 - afterName, 15 - afterName, 22 - afterName
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= start || len(fields[0]) != 1 {
		return state{}, fmt.Errorf("malformed stat line %q", stat)
	}
	var n [3]uint64
	for i, field := range []int{utime, stime, start} {
		v, err := strconv.ParseUint(string(fields[field]), 10, 62)
		if err != nil {
			return state{}, fmt.Errorf("field %d of stat line: %w", field+afterName, err)
		}
		n[i] = v
	}
	return state{
		running: fields[0][0] == 'R',
		start:   n[2],
		ran:     time.Duration(n[0]+n[1]) * tick,
	}, nil
}

// slowdown is the share of its own time that bursts took the thread.
func (t *thread) slowdown() float64 {
	if t.free <= 0 {
		return 0
	}
	return float64(t.held) / float64(t.free)
}

// observe takes note of the CPU time that the thread has used when it was not
// held, if bursts may slow it down by overhead (0.1: to 1.1 times the time). It
// saves no more than a burst or two: a thread that the stepper does not get to,
// as among many, must not make up for that by standing still later.
func (t *thread) observe(s state, overhead float64) {
	free := max(0, s.ran-t.ran)
	t.ran = s.ran
	t.free += free
	t.saved = min(t.saved+time.Duration(overhead*float64(free)), 2*t.wait)
}

// charge takes note of a burst and draws the budget that the next one waits
// for: what a burst takes on average, and up to twice that, so that bursts do
// not fall into step with what the program does periodically.
func (t *thread) charge(held, average time.Duration) {
	t.held += held
	t.saved -= held
	if s, err := readState(t.pid, t.tid); err == nil {
		t.ran = max(t.ran, s.ran) // what ran in the burst is not free
	}
	t.wait = jitter(max(average, leastWait))
}

// leastWait is the least that a thread saves for a burst, however short they
// are: a stop costs more than the time that it lasts, and may cut a system call
// short.
const leastWait = time.Millisecond

func jitter(average time.Duration) time.Duration {
	return average + rand.N(average+1)
}
