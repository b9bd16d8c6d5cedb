package stepping

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
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
// then: what was attached to but has not stopped yet is let go with it.
func Run(in io.Reader, out io.Writer) error {
	// Whoever ends us does so by closing the pipe. A signal in the middle of
	// a burst would take the target along.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE,
		unix.SIGALRM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU,
		unix.SIGCHLD) // one for each stop
	decoder := gob.NewDecoder(in)
	var first request
	if err := decoder.Decode(&first); err != nil || first.Options == nil {
		return errors.New("this command is for fulgur's own use: no options on standard input")
	}
	// The thread that is to trace, and only it may then. Its priority is its
	// own.
	runtime.LockOSThread()
	protect()
	s := &stepper{
		opts:     *first.Options,
		reports:  make(chan report, 64),
		roots:    map[int]bool{},
		threads:  map[int]*thread{},
		attached: map[int]*thread{},
		average:  firstBurst,
	}
	written := make(chan struct{})
	go s.write(gob.NewEncoder(out), written)
	s.tracer = tracer{
		hold:     s.opts.BurstMax,
		stopping: s.stopping.Load,
	}
	s.add(first.Add)
	s.send(s.status())
	go s.listen(decoder)
	s.work()
	s.send(s.status())
	close(s.reports)
	<-written
	return nil
}

// protect makes the stepper the last to be killed or to wait for a processor:
// a burst holds another's thread. Without CAP_SYS_RESOURCE and CAP_SYS_NICE it
// stays as it is. Where the kernel groups processes by session (autogroup, see
// sched(7)), it is the group's priority that counts.
func protect() {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0)
}

// stepper is the state of the stepper process.
type stepper struct {
	opts   Options
	tracer tracer

	reports  chan report // on their way to the parent
	stopping atomic.Bool // in has ended

	mu       sync.Mutex
	requests []request // since the last scan

	refused []RefusalError // since the last report
	roots   map[int]bool   // the processes, true: stepped
	threads map[int]*thread
	order   []*thread // the threads in this round's order
	// attached are the threads whose stop for a burst is still to come.
	attached map[int]*thread
	average  time.Duration
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
			s.roots[pid] = true // its threads are refused as long as they are
		default:
			s.admitted(pid, err)
		}
	}
}

// admitted takes note of what [admit] said of a process.
func (s *stepper) admitted(pid int, err error) {
	s.roots[pid] = err == nil
	if err != nil {
		s.refused = append(s.refused, RefusalError{PID: pid, Reason: err.Error()})
	}
}

// status reports what was done, and the refusals since it was last called.
func (s *stepper) status() report {
	stats := s.tracer.stats
	r := report{Stats: &stats, Refused: s.refused}
	s.refused = nil
	return r
}

// send has a report written. While the parent does not read, as when it is
// stopped by Ctrl-Z, that waits, and nobody is held meanwhile.
func (s *stepper) send(r report) {
	for {
		select {
		case s.reports <- r:
			return
		default:
			s.release()
			sleep(minPause)
		}
	}
}

// write writes the reports to the parent. One that does not read any more has
// closed the other pipe too.
func (s *stepper) write(out *gob.Encoder, written chan<- struct{}) {
	defer close(written)
	for r := range s.reports {
		_ = out.Encode(r)
	}
}

// release lets those threads go that have stopped only after their burst was
// given up.
func (s *stepper) release() {
	for tid, t := range s.attached {
		s.conclude(t, s.tracer.settle(tid))
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
		pause := s.round()
		s.release()
		if len(s.attached) > 0 {
			pause = min(pause, minPause)
		}
		if pause > 0 {
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
	for pid, stepped := range s.roots {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			delete(s.roots, pid)
			continue
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil || !stepped {
				continue
			}
			seen[tid] = true
			if s.threads[tid] == nil {
				s.threads[tid] = &thread{pid: pid, tid: tid, wait: jitter(s.average)}
				s.tracer.stats.Threads++
			}
		}
	}
	for tid := range s.threads {
		if !seen[tid] && s.attached[tid] == nil {
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
	s.release() // nobody is held through the bursts of others
	if t.refused || s.attached[t.tid] != nil {
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
	if ignoresTrap(t.pid, t.tid) {
		s.conclude(t, outcome{refused: errIgnoring})
		return maxIdle
	}
	out := s.tracer.burst(t.tid)
	t.charge(out.held, s.average)
	s.average = (7*s.average + out.held) / 8
	s.conclude(t, out)
	if out.refused != nil {
		return maxIdle
	}
	if len(s.tracer.entries) > 0 {
		s.send(report{Sample: &Sample{PID: t.pid, TID: t.tid, Time: s.tracer.ended, Entries: slices.Clone(s.tracer.entries)}})
	}
	return 0
}

// conclude takes note of what became of the thread.
func (s *stepper) conclude(t *thread, out outcome) {
	if out.attached {
		s.attached[t.tid] = t
		return
	}
	delete(s.attached, t.tid)
	switch {
	case out.gone:
		delete(s.threads, t.tid)
	case out.refused != nil:
		if !t.told {
			s.refused = append(s.refused, RefusalError{PID: t.pid, TID: t.tid, Reason: out.refused.Error()})
		}
		t.told, t.refused = true, !errors.Is(out.refused, errTraced)
	}
}

// measure works out how much the threads were slowed down.
func (s *stepper) measure() {
	for _, t := range s.threads {
		if t.free >= time.Second {
			s.tracer.stats.MaxSlowdown = max(s.tracer.stats.MaxSlowdown, t.slowdown())
		}
	}
}
