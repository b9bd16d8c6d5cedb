package stopping

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/perfring"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/tracing"
)

// Options configure a [Sampler].
type Options struct {
	// Target is the target: processes, threads or a command.
	Target target.Target
	// Period is the CPU time between two samples of a thread.
	Period time.Duration
	// Interpreters are the processes with an interpreter, nil if its frames are not wanted.
	Interpreters *Interpreters
}

// Sampler samples the threads of a target by stopping them. It delivers samples, and what it finds out about their
// processes, as records of perf events; the period of a sample is the CPU time that it stands for, in ns.
type Sampler struct {
	options Options
	atStart map[int]int // processes of the threads at the start

	// The state of the goroutine that traces.
	processes []*process
	scanned   time.Time
	scanTook  time.Duration
	late      []tracee
	state     state
	stack     []byte // for state
	block     []byte // likewise
	text      []byte // of stat files
	files     int    // open stat files
	pace      pace
	held      time.Duration // in this round
	stopped   int           // threads in this round
	began     time.Time
	published time.Time
	batch     []perfevent.Record // not yet delivered
	stats     Stats              // see Stats
	ended     time.Duration      // CPU time of processes that have ended
	total     time.Duration      // CPU time of the target at the end
	finished  bool               // the goroutine has ended

	quit atomic.Bool
	done chan struct{} // nil before the start

	mu      sync.Mutex // protects what follows
	records []perfevent.Record
	bytes   int // of the samples in records
	lost    uint64
	shown   Stats
}

// Limits of what is kept until the records are taken, and of open files.
const (
	maxRecords = 1 << 18
	maxBytes   = 64 << 20
	maxFiles   = 256
)

// New returns a sampler of a target. It reports which of its processes cannot be sampled: if there are no others, that is the
// error.
func New(o Options) (_ *Sampler, err error) {
	s := &Sampler{
		options: o, atStart: map[int]int{}, stack: make([]byte, stackCopy), block: make([]byte, blockSize), text: make([]byte, 4096),
		pace: newPace(o.Period),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := tracing.Permitted(); err != nil {
		return nil, err
	}
	if err := s.scan(); err != nil {
		return nil, err
	}
	if len(s.processes) == 0 {
		return nil, fmt.Errorf("%s: %w", o.Target, target.ErrNotFound)
	}
	for _, p := range s.processes {
		if err := s.admit(p); err != nil && o.Target.Scope != target.Command { // fulgur itself still traces a command
			s.refuse(p.pid, err)
			p.refused = true
		}
		for _, t := range p.threads {
			s.atStart[t.tid] = p.pid
		}
	}
	if !slices.ContainsFunc(s.processes, func(p *process) bool { return !p.refused }) {
		return nil, s.stats.Refused[0]
	}
	s.batch = nil // the caller knows these processes
	return s, nil
}

// admit checks whether a process may be stopped.
func (s *Sampler) admit(p *process) error {
	if p.pid == 1 {
		return errors.New("is the init process, which fulgur never stops")
	}
	if p.pid == os.Getpid() {
		return errors.New("is fulgur itself")
	}
	status, err := procfs.Through(p.pid, func(id int) (procfs.Status, error) { return procfs.Process(id).Status() })
	if err != nil {
		return tracing.ErrGone
	}
	if user := uint32(os.Getuid()); status.UIDs != [4]uint32{user, user, user, user} {
		return errors.New("belongs to another user")
	}
	if err := tracing.Traced(status); err != nil {
		return err
	}
	_, err = procfs.Through(p.pid, func(id int) (struct{}, error) { return struct{}{}, tracing.Allowed(id) })
	return err
}

// refused notes why attaching to a thread has failed.
func (s *Sampler) refused(p *process, tid int, err error) {
	if !errors.Is(err, unix.EPERM) {
		return // gone
	}
	status, err := procfs.Thread(p.pid, tid).Status()
	if err != nil {
		return
	}
	if err := tracing.Traced(status); err != nil {
		s.stats.Traced++
		if s.stats.Tracer == "" {
			s.stats.Tracer = err.Error()
		}
		return
	}
	if err := tracing.Allowed(tid); err != nil && !errors.Is(err, tracing.ErrGone) {
		s.refuse(p.pid, err)
		p.refused = true
	}
}

func (s *Sampler) refuse(pid int, err error) {
	s.stats.Refused = append(s.stats.Refused, RefusalError{pid, err})
}

// Threads returns the threads of the target at the start, with their processes.
func (s *Sampler) Threads() map[int]int { return s.atStart }

// Enable starts to sample.
func (s *Sampler) Enable() error {
	if err := s.scan(); err != nil {
		return err
	}
	for _, p := range s.processes {
		p.start, _ = clock(p.pid)
		p.used, p.since = p.start, monotonic.Now()
		for _, t := range p.threads {
			if stat, err := t.stat(s.text); err == nil {
				t.first, p.image = t.cpu(stat), imageOf(stat)
				t.ran = t.first
			}
		}
	}
	s.began = time.Now()
	s.deliver()
	s.done = make(chan struct{})
	go s.run()
	return nil
}

// run is the goroutine that traces. It ends with its OS thread: the kernel then detaches from threads that have not stopped.
func (s *Sampler) run() {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The first thread of a Go program cannot end.
		defer runtime.UnlockOSThread()
		rest := make(chan struct{})
		go func() {
			defer close(rest)
			s.run()
		}()
		<-rest
		return
	}
	defer close(s.done)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // ns
	tracing.IgnoreStops()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20) // needs CAP_SYS_NICE
	for next := time.Now(); !s.quit.Load(); {
		next = next.Add(s.between())
		if now := time.Now(); next.Before(now) {
			next = now
		}
		s.sleepUntil(next)
		if s.quit.Load() {
			break
		}
		s.round()
	}
	s.finish()
}

// lastRound limits the time that the last samples may take on a busy machine.
const lastRound = 200 * time.Millisecond

// finish takes a last sample of each thread that runs, for its CPU time since the one before.
func (s *Sampler) finish() {
	until := time.Now().Add(lastRound)
	finishLate := func() {
		for len(s.late) > 0 && time.Now().Before(until) {
			s.finishLate()
			tracing.Sleep(int64(longestPause))
		}
	}
	finishLate()
	for _, p := range s.processes {
		for _, t := range p.threads {
			if p.late || p.refused || time.Now().After(until) {
				break
			}
			if stat, err := t.stat(s.text); err == nil && stat.State == 'R' {
				s.look(p, t, stat)
				finishLate()
			}
		}
	}
	s.letGoStrays()
	s.deliver()
}

// between returns the time until the next round: at random, so as not to fall into step with the target.
func (s *Sampler) between() time.Duration {
	d := s.pace.interval
	return d - d/8 + rand.N(d/4+1)
}

// sleepUntil sleeps, and meanwhile lets late threads go.
func (s *Sampler) sleepUntil(next time.Time) {
	const most = 50 * time.Millisecond // to notice the end
	for !s.quit.Load() {
		left := time.Until(next)
		if left <= 0 {
			return
		}
		if pause := s.latePause(); pause > 0 {
			left = min(left, pause)
		}
		tracing.Sleep(int64(min(left, most)))
		s.finishLate()
	}
}

// scanEvery is the least time between two searches for processes and threads.
const scanEvery = 10 * time.Millisecond

// round looks at all processes.
func (s *Sampler) round() {
	before := ownTime()
	if time.Since(s.scanned) > max(s.pace.interval, scanEvery, 2*ownShare*s.scanTook) {
		_ = s.scan() // what it lacks, it finds the next time
	}
	for _, p := range slices.Clone(s.processes) {
		s.visit(p)
	}
	s.letGoStrays()
	s.deliver()
	s.pace.took(ownTime()-before, s.held/time.Duration(max(s.stopped, 1)))
	s.held, s.stopped = 0, 0
	s.stats.Rounds++
	s.stats.Lasted = time.Since(s.began)
	if now := time.Now(); now.Sub(s.published) > publishEvery {
		s.published = now
		s.publish()
	}
}

// publishEvery is the interval at which statistics are published.
const publishEvery = 50 * time.Millisecond

// publish makes the current statistics those of [Sampler.Stats].
func (s *Sampler) publish() {
	shown := s.stats.clone()
	s.mu.Lock()
	s.shown = shown
	s.mu.Unlock()
}

// ownTime returns the CPU time of this OS thread.
func ownTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// visit samples the threads of a process that are due.
func (s *Sampler) visit(p *process) {
	used, ok := clock(p.pid)
	if !ok {
		s.remove(p)
		return
	}
	cpus := float64(used-p.used) / float64(s.pace.interval)
	p.used = used
	if p.refused || p.late {
		return
	}
	wanted, taken := p.round(cpus), 0
	if wanted > 0 {
		p.shuffle()
		for _, t := range p.threads {
			if taken == wanted || p.late || p.refused {
				break
			}
			stat, err := t.stat(s.text)
			if err == nil && stat.State == 'R' && s.look(p, t, stat) {
				taken++
			}
		}
	}
	p.settle(taken)
}

// look handles a thread that was seen running, in the given state. It reports whether it takes a sample.
func (s *Sampler) look(p *process, t *thread, stat procfs.Stat) bool {
	now := monotonic.Now()
	if stat.Comm != t.comm {
		t.comm = stat.Comm
		s.batch = append(s.batch, perfevent.Comm{Stamp: perfevent.Stamp{Time: now}, PID: p.pid, TID: t.tid, Comm: t.comm})
	}
	if running := imageOf(stat); running != p.image {
		s.executed(p, t, running, now)
	}
	return s.stop(p, t)
}

// take makes a sample of s.state, the state of a thread that was let go. It reports false if the thread has ended, executed a
// program, or used no CPU time since its last sample.
func (s *Sampler) take(one *tracee) bool {
	p, t := one.process, one.thread
	stat, err := t.stat(s.text)
	if err != nil || imageOf(stat) != p.image || stat.Comm != one.name {
		return false
	}
	ran := t.cpu(stat)
	weight := ran - t.ran
	if weight <= 0 || !s.readMaps(p, t, stat) {
		return false
	}
	t.ran = ran
	r := s.state.sample()
	r.PID, r.TID, r.CPU, r.Period = p.pid, t.tid, uint32(stat.Processor), uint64(weight)
	s.batch = append(s.batch, perfring.Interpreted{Sample: r, Frames: s.state.interpreted})
	s.stats.Samples++
	s.deliver()
	return true
}

// executed notes that a process runs another program.
func (s *Sampler) executed(p *process, t *thread, running image, now uint64) {
	p.program = program{image: running, since: now}
	if p.mem != nil {
		_ = p.mem.Close()
		p.mem = nil
	}
	s.batch = append(s.batch, perfevent.Comm{Stamp: perfevent.Stamp{Time: now}, PID: p.pid, TID: t.tid, Comm: t.comm, Exec: true})
}

// deliver hands the batch over.
func (s *Sampler) deliver() {
	if len(s.batch) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.batch {
		one, ok := r.(perfring.Interpreted)
		size := one.Size()
		if ok && (len(s.records) > maxRecords || s.bytes+size > maxBytes) {
			s.lost++
			continue
		}
		s.bytes += size
		s.records = append(s.records, r)
	}
	clear(s.batch)
	s.batch = s.batch[:0]
}

// Take returns the records since the last call, and the number of samples for which there was no room.
func (s *Sampler) Take() (records []perfevent.Record, lost uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	records, lost = s.records, s.lost
	s.records, s.bytes, s.lost = nil, 0, 0
	return records, lost, nil
}

// FollowCPUs does nothing: threads are sampled on all CPUs.
func (s *Sampler) FollowCPUs([]int) error { return nil }

// Disable ends sampling. Afterwards, no thread is attached that could stop.
func (s *Sampler) Disable() error {
	if s.done == nil || s.quit.Swap(true) {
		return nil
	}
	const limit = 5 * time.Second
	select {
	case <-s.done:
	case <-time.After(limit): // it waits for a file of /proc, and then ends
		return nil
	}
	s.total = s.ended
	for _, p := range s.processes {
		if used, ok := clock(p.pid); ok {
			p.used = used
		}
		s.total += s.usedBy(p)
	}
	s.stats.Lasted = time.Since(s.began)
	s.publish()
	s.finished = true
	return nil
}

// usedBy returns the CPU time that a process has used since the start, or those of its threads that are the target.
func (s *Sampler) usedBy(p *process) time.Duration {
	if s.options.Target.Scope != target.Threads {
		return p.used - p.start
	}
	sum := p.gone
	for _, t := range p.threads {
		if stat, err := t.stat(s.text); err == nil {
			sum += t.cpu(stat) - t.first
		}
	}
	return sum
}

// Total returns the CPU time of the target between [Sampler.Enable] and [Sampler.Disable] in ns, of which samples stand for
// a part. It lacks that of processes that started and ended between two looks, and what others used after the last look.
func (s *Sampler) Total() uint64 { return uint64(s.total) }

// Close ends sampling.
func (s *Sampler) Close() error {
	err := s.Disable()
	if s.finished || s.done == nil {
		for _, p := range s.processes {
			s.forget(p)
		}
		s.processes = nil
	}
	return err
}
