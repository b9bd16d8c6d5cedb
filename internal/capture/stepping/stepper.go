package stepping

import (
	"encoding/gob"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/capability"
)

// The stepper's pace.
const (
	// rescan is how often new threads are looked for.
	rescan = 100 * time.Millisecond
	// Between them is the pause after a round in which no thread was due.
	minPause, maxIdle = time.Millisecond, 20 * time.Millisecond
	// looks is how many threads are looked at in a round.
	looks = 32
	// tellEvery is how often statistics are sent.
	tellEvery = 500 * time.Millisecond
	// firstBurst is what a burst is expected to take before one was seen.
	firstBurst = 5 * time.Millisecond
)

// request is what the parent sends: the options first, then processes to step
// and to leave alone.
type request struct {
	Options   *Options
	Add, Drop []int
}

// report is what the stepper sends. The first answers the options.
type report struct {
	Sample  *Sample
	Stats   *Stats
	Refused []RefusalError
}

// Run is the stepper process: it reads requests from in and writes reports to
// out until in ends. It returns between two bursts, and the process must end
// then.
func Run(in io.Reader, out io.Writer) error {
	// Who can kill us can kill what we step. So the kernel is to judge by what
	// our user may trace.
	if err := capability.Drop(); err != nil {
		return err
	}
	ignoreSignals() // Drop takes one
	decoder := gob.NewDecoder(in)
	var first request
	if err := decoder.Decode(&first); err != nil || first.Options == nil {
		return errors.New("this command is for fulgur's own use: no options on standard input")
	}
	protect()
	s := &stepper{
		opts:    *first.Options,
		reports: make(chan report, 64),
		roots:   map[int]root{},
		threads: map[int]*thread{},
		average: firstBurst,
	}
	written := make(chan struct{})
	go s.write(gob.NewEncoder(out), written)
	s.tracers = newTracers(s.opts.BurstMax, s.stopping.Load)
	s.add(first.Add)
	s.send(s.status())
	go s.listen(decoder)
	s.work()
	s.tracers.finish()
	s.tracers.collect(s.collected)
	s.send(s.status())
	close(s.reports)
	<-written
	return nil
}

// ignoreSignals ignores all signals that can be ignored except those that Go's runtime
// uses: one that ended the stepper in the middle of a burst would kill the target. The
// stepper ends when its parent closes the pipe. [signal.Ignore] leaves some signals to
// the runtime, so the system call follows; but without it, the runtime would raise SIGPIPE
// when a report meets a closed standard output.
func ignoreSignals() {
	signal.Ignore(unix.SIGPIPE)
	for sig := unix.SIGHUP; sig <= lastSignal; sig++ {
		switch sig {
		case unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGURG, unix.SIGPROF:
		default:
			action := struct{ handler, flags, restorer, mask uintptr }{handler: ignore}
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(action.mask), 0, 0)
		}
	}
}

const (
	lastSignal = unix.Signal(64) // the highest number of a signal
	ignore     = 1               // SIG_IGN
)

// protect makes the stepper the last to be killed or to wait for a processor:
// a burst holds another's thread. Without CAP_SYS_RESOURCE and CAP_SYS_NICE it
// stays as it is. Where the kernel groups processes by session (autogroup, see
// sched(7)), it is the group's priority that counts.
func protect() {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
	prioritize()
	_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0)
}

// stepper is the state of the stepper process.
type stepper struct {
	opts    Options
	tracers *tracers
	stats   Stats

	reports  chan report // on their way to the parent
	stopping atomic.Bool // in has ended

	mu       sync.Mutex
	requests []request // since the last scan

	refused []RefusalError // since the last report
	roots   map[int]root   // by process
	threads map[int]*thread
	order   []*thread // the threads in this round's order
	average time.Duration
}

// root is a process that is to be stepped.
type root struct {
	stepped bool   // it was not refused
	start   uint64 // when it started: its number may be given to another
}

// listen takes the parent's requests.
func (s *stepper) listen(decoder *gob.Decoder) {
	for {
		var r request
		if decoder.Decode(&r) != nil {
			break
		}
		s.mu.Lock()
		s.requests = append(s.requests, r)
		s.mu.Unlock()
	}
	s.stopping.Store(true)
}

// add has processes stepped that can be.
func (s *stepper) add(pids []int) {
	for _, pid := range pids {
		s.admitted(pid, admit(pid, someBursts))
	}
}

// addLater has processes stepped, too. That they have ended meanwhile is nothing
// to tell. Who traces one may let go of it, and nobody waits for that here:
// threads may be attached.
func (s *stepper) addLater(pids []int) {
	for _, pid := range pids {
		if _, known := s.roots[pid]; known {
			continue
		}
		switch err := admit(pid, 0); {
		case errors.Is(err, errGone):
		case errors.Is(err, errTraced):
			s.admitted(pid, nil) // its threads are refused as long as they are
		default:
			s.admitted(pid, err)
		}
	}
}

// admitted takes note of what [admit] said of a process.
func (s *stepper) admitted(pid int, err error) {
	now, _ := readState(pid, pid) // of one that has ended scan finds out
	s.roots[pid] = root{stepped: err == nil, start: now.start}
	if err != nil {
		s.refused = append(s.refused, RefusalError{PID: pid, Reason: err.Error()})
	}
}

// status reports what was done, and the refusals since it was last called.
func (s *stepper) status() report {
	stats := s.stats
	r := report{Stats: &stats, Refused: s.refused}
	s.refused = nil
	return r
}

// send has a report written. While the parent does not read, as when it is
// stopped by Ctrl-Z, that waits.
func (s *stepper) send(r report) { s.reports <- r }

// write writes the reports to the parent. One that does not read any more has
// closed the other pipe too.
func (s *stepper) write(out *gob.Encoder, written chan<- struct{}) {
	defer close(written)
	for r := range s.reports {
		_ = out.Encode(r)
	}
}

// work steps until the parent has closed its pipe.
func (s *stepper) work() {
	var scanned, reported time.Time
	for !s.stopping.Load() {
		if now := time.Now(); now.Sub(scanned) >= rescan {
			s.scan()
			scanned = now
		}
		if now := time.Now(); now.Sub(reported) >= tellEvery {
			s.measure()
			s.send(s.status())
			reported = now
		}
		s.tracers.collect(s.collected)
		if pause := s.round(); pause > 0 {
			// Of any length, so as not to fall into step with the target.
			sleep(pause/2 + rand.N(pause/2))
		}
	}
}

// scan brings the list of threads up to date.
func (s *stepper) scan() {
	s.mu.Lock()
	requests := s.requests
	s.requests = nil
	s.mu.Unlock()
	for _, r := range requests {
		s.addLater(r.Add)
		for _, pid := range r.Drop {
			delete(s.roots, pid)
		}
	}
	seen := map[int]bool{}
	for pid, root := range s.roots {
		now, err := readState(pid, pid)
		tids, tasksErr := threads(pid)
		if err != nil || tasksErr != nil || now.start != root.start {
			delete(s.roots, pid)
			continue
		}
		if !root.stepped {
			continue
		}
		for _, tid := range tids {
			seen[tid] = true
			if s.threads[tid] == nil {
				s.threads[tid] = &thread{pid: pid, tid: tid, wait: jitter(s.average)}
				s.stats.Threads++
			}
		}
	}
	for tid := range s.threads {
		if !seen[tid] {
			delete(s.threads, tid)
		}
	}
}

// round looks at some threads, in random order, and gives those bursts that
// are due. It returns how long to wait before the next.
func (s *stepper) round() (pause time.Duration) {
	pause = maxIdle
	for i := 0; i < looks && !s.stopping.Load(); i++ {
		if len(s.order) == 0 {
			s.order = slices.Collect(maps.Values(s.threads))
			rand.Shuffle(len(s.order), func(i, j int) { s.order[i], s.order[j] = s.order[j], s.order[i] })
			if len(s.order) == 0 {
				return pause
			}
		}
		t := s.order[len(s.order)-1]
		s.order = s.order[:len(s.order)-1]
		if s.threads[t.tid] == t {
			pause = min(pause, s.visit(t))
		}
		if len(s.order) == 0 {
			return pause // all were seen
		}
	}
	return min(pause, minPause)
}

// visit gives the thread a burst if it runs and its budget allows. It returns
// when to look at it again.
func (s *stepper) visit(t *thread) time.Duration {
	if t.refused || !s.tracers.free(t.pid) {
		return maxIdle
	}
	now, err := readState(t.pid, t.tid)
	switch {
	case err != nil:
		delete(s.threads, t.tid)
		return maxIdle
	case t.start == 0: // seen for the first time
		t.start, t.ran = now.start, now.ran
	case t.start != now.start: // the number was given to another
		delete(s.threads, t.tid)
		return maxIdle
	case !now.running:
		return maxIdle
	}
	t.observe(now, s.opts.MaxOverhead)
	if lacks := t.wait - t.saved; lacks > 0 {
		return max(minPause, time.Duration(float64(lacks)/s.opts.MaxOverhead))
	}
	out := s.tracers.burst(t.pid, t.tid)
	if out == nil {
		return 0
	}
	s.conclude(t, *out)
	if out.refused != nil {
		return maxIdle
	}
	return 0
}

// collected takes note of a burst that was late.
func (s *stepper) collected(j *job, out outcome) {
	s.stats.add(out.stats)
	if t := s.threads[j.tid]; t != nil && t.pid == j.pid {
		out.stats = Stats{}
		s.conclude(t, out)
	}
}

// conclude takes note of a burst, and of what became of the thread.
func (s *stepper) conclude(t *thread, out outcome) {
	s.stats.add(out.stats)
	t.charge(out.held, s.average)
	s.average = (7*s.average + out.held) / 8
	switch {
	case errors.Is(out.refused, errGone):
		delete(s.threads, t.tid)
	case out.refused != nil:
		if !t.told {
			s.refused = append(s.refused, RefusalError{PID: t.pid, TID: t.tid, Reason: out.refused.Error()})
		}
		t.told, t.refused = true, !errors.Is(out.refused, errTraced)
	case len(out.entries) > 0:
		s.send(report{Sample: &Sample{PID: t.pid, TID: t.tid, Time: out.ended, Entries: out.entries}})
	}
}

// measure works out how much the threads were slowed down.
func (s *stepper) measure() {
	for _, t := range s.threads {
		if t.free >= time.Second {
			s.stats.MaxSlowdown = max(s.stats.MaxSlowdown, t.slowdown())
		}
	}
}
