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

	"fulgur/internal/bolt"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/tracing"
)

// The stepper's timing.
const (
	// rescan is the interval of searches for new threads.
	rescan = 100 * time.Millisecond
	// These limit the pause after a round in which no thread was due.
	minPause, maxIdle = time.Millisecond, 20 * time.Millisecond
	// looks is the number of threads to look at in a round.
	looks = 32
	// statsInterval is the interval of reports with statistics.
	statsInterval = 500 * time.Millisecond
	// firstBurst is the expected length of a burst before the first one.
	firstBurst = 5 * time.Millisecond
)

// request is a message from the parent: first the options, then processes to add and
// drop.
type request struct {
	Options   *Options
	Add, Drop []int
}

// report is a message from the stepper. The first one replies to the options.
type report struct {
	Sample  *bolt.Sample
	Stats   *Stats
	Refused []RefusalError
}

// Run is the main function of the stepper process. It reads requests from in and writes
// reports to out until in ends. It returns between two bursts; the process must exit
// then.
func Run(in io.Reader, out io.Writer) error {
	// Anyone who can kill us can kill what we step. So let the kernel check what our user
	// may trace, without our capabilities.
	if err := capability.Drop(); err != nil {
		return err
	}
	ignoreSignals() // Drop installs a handler
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

// ignoreSignals ignores all signals that can be ignored, except the Go runtime's own:
// a signal that ended the stepper in the middle of a burst would kill the target. The
// stepper ends when its parent closes the pipe. [signal.Ignore] leaves some signals to
// the runtime, hence the system call. But without it, the runtime would raise SIGPIPE
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
	lastSignal = unix.Signal(64) // the highest signal number
	ignore     = 1               // SIG_IGN
)

// protect makes the stepper the last process to be killed when memory runs out, and the
// first to get a CPU: during a burst it holds another thread. Without CAP_SYS_RESOURCE
// and CAP_SYS_NICE it has no effect. If the kernel schedules by session (autogroup, see
// sched(7)), only the priority of the group counts. It is set only in a session of the
// stepper's own: in another one, it would starve the rest of the machine from then on.
func protect() {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
	prioritize()
	if sid, err := unix.Getsid(0); err == nil && sid == unix.Getpid() {
		_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0)
	}
}

// stepper is the state of the stepper process.
type stepper struct {
	opts    Options
	tracers *tracers
	stats   Stats

	reports  chan report // to the parent
	stopping atomic.Bool // in has ended

	mu       sync.Mutex
	requests []request // since the last scan

	refused []RefusalError // since the last report
	roots   map[int]root   // by process ID
	threads map[int]*thread
	order   []*thread // threads in the order of this round
	average time.Duration
}

// root is a process to step.
type root struct {
	stepped bool   // it was not refused
	start   uint64 // start time, since the ID may be reused
}

// listen receives the parent's requests.
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

// add adds the processes that can be stepped.
func (s *stepper) add(pids []int) {
	for _, pid := range pids {
		s.admitted(pid, admit(pid, someBursts))
	}
}

// addLater is like add while stepping. It ignores processes that have ended. A process
// traced by another tracer is added without waiting for that, since threads may be
// attached.
func (s *stepper) addLater(pids []int) {
	for _, pid := range pids {
		if _, known := s.roots[pid]; known {
			continue
		}
		switch err := admit(pid, 0); {
		case errors.Is(err, tracing.ErrGone):
		case errors.Is(err, tracing.ErrTraced):
			s.admitted(pid, nil) // its threads are refused as long as it is traced
		default:
			s.admitted(pid, err)
		}
	}
}

// admitted records the result of [admit] for a process.
func (s *stepper) admitted(pid int, err error) {
	now, _ := readState(pid, pid) // scan notices if it has ended
	s.roots[pid] = root{stepped: err == nil, start: now.start}
	if err != nil {
		s.refused = append(s.refused, RefusalError{PID: pid, Reason: err.Error()})
	}
}

// status returns the statistics, and the refusals since its last call.
func (s *stepper) status() report {
	stats := s.stats
	r := report{Stats: &stats, Refused: s.refused}
	s.refused = nil
	return r
}

// send queues a report. It blocks while the parent does not read, for example when
// stopped by Ctrl-Z.
func (s *stepper) send(r report) { s.reports <- r }

// write writes the reports to the parent. A parent that no longer reads has closed the
// other pipe too.
func (s *stepper) write(out *gob.Encoder, written chan<- struct{}) {
	defer close(written)
	for r := range s.reports {
		_ = out.Encode(r)
	}
}

// work steps until the parent closes its pipe.
func (s *stepper) work() {
	var scanned, reported time.Time
	for !s.stopping.Load() {
		if now := time.Now(); now.Sub(scanned) >= rescan {
			s.scan()
			scanned = now
		}
		if now := time.Now(); now.Sub(reported) >= statsInterval {
			s.measure()
			s.send(s.status())
			reported = now
		}
		s.tracers.collect(s.collected)
		if pause := s.round(); pause > 0 {
			// A random pause, so as not to fall into step with the target.
			sleep(pause/2 + rand.N(pause/2))
		}
	}
}

// scan updates the list of threads.
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
		tids, tasksErr := procfs.Threads(pid)
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

// round visits some threads in random order and gives a burst to those that are due. It
// returns the pause before the next round.
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
			return pause // all were visited
		}
	}
	return min(pause, minPause)
}

// visit gives the thread a burst if it is running and its budget allows. It returns when
// to visit it again.
func (s *stepper) visit(t *thread) time.Duration {
	if t.refused || !s.tracers.free(t.pid) {
		return maxIdle
	}
	now, err := readState(t.pid, t.tid)
	switch {
	case err != nil:
		delete(s.threads, t.tid)
		return maxIdle
	case t.start == 0: // first visit
		t.start, t.ran = now.start, now.ran
	case t.start != now.start: // the ID was reused
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

// collected records a burst that was late.
func (s *stepper) collected(j *job, out outcome) {
	s.stats.add(out.stats)
	if t := s.threads[j.tid]; t != nil && t.pid == j.pid {
		out.stats = Stats{}
		s.conclude(t, out)
	}
}

// conclude records a burst and the resulting state of the thread.
func (s *stepper) conclude(t *thread, out outcome) {
	s.stats.add(out.stats)
	t.charge(out.held, s.average)
	s.average = (7*s.average + out.held) / 8
	switch {
	case errors.Is(out.refused, tracing.ErrGone):
		delete(s.threads, t.tid)
	case out.refused != nil:
		if !t.reported {
			s.refused = append(s.refused, RefusalError{PID: t.pid, TID: t.tid, Reason: out.refused.Error()})
		}
		t.reported, t.refused = true, !errors.Is(out.refused, tracing.ErrTraced)
	case len(out.entries) > 0:
		s.send(report{Sample: &bolt.Sample{PID: t.pid, TID: t.tid, Time: out.ended, Entries: out.entries}})
	}
}

// measure computes the slowdown of the threads.
func (s *stepper) measure() {
	for _, t := range s.threads {
		if t.free >= time.Second {
			s.stats.MaxSlowdown = max(s.stats.MaxSlowdown, t.slowdown())
		}
	}
}
