package stepping

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"fulgur/internal/bolt"
)

// Subcommand is fulgur's hidden command that calls [Run]. The program executes itself
// with it.
const Subcommand = "branch-stepper"

// Default limits of the cost of bursts.
const (
	// DefaultOverhead is for processes that others depend on.
	DefaultOverhead = 0.1
	// CommandOverhead is for a command that is started only to be measured.
	CommandOverhead = 0.5
	// DefaultBurstMax is the maximum time that a thread is held.
	DefaultBurstMax = 20 * time.Millisecond
)

// MaxBranches is the maximum number of branches in a sample, as with most processors that
// record branches.
const MaxBranches = 32

// Options configures a [Stepper].
type Options struct {
	// MaxOverhead bounds the slowdown of each thread: 0.1 means ten percent. 0 means
	// DefaultOverhead.
	MaxOverhead float64
	// BurstMax is the maximum time to hold a thread; 0 means DefaultBurstMax.
	BurstMax time.Duration
}

// Stats counts the stepper's work so far.
type Stats struct {
	// The numbers of threads seen, of bursts, of executed instructions, and of recorded
	// branches.
	Threads, Bursts, Steps, Records uint64
	// The numbers of bursts by reason for their end: enough branches, the deadline, a
	// system call or another instruction that must not be stepped, a signal, a long
	// string instruction, the kernel moving the thread.
	Full, Deadline, Sensitive, Signal, Repeated, Moved uint64
	// Interrupted is the number of system calls that returned EINTR because of a stop,
	// see the package comment.
	Interrupted uint64
	// Held is the total time that threads were held, and LongestHold the longest single
	// time. Both include waiting for a CPU.
	Held, LongestHold time.Duration
	// MaxSlowdown is the largest slowdown of a thread that ran for at least a second: 0.1
	// means ten percent.
	MaxSlowdown float64
}

// add adds the statistics of a burst.
func (s *Stats) add(d Stats) {
	s.Bursts += d.Bursts
	s.Steps += d.Steps
	s.Records += d.Records
	s.Full += d.Full
	s.Deadline += d.Deadline
	s.Sensitive += d.Sensitive
	s.Signal += d.Signal
	s.Repeated += d.Repeated
	s.Moved += d.Moved
	s.Interrupted += d.Interrupted
	s.Held += d.Held
	s.LongestHold = max(s.LongestHold, d.LongestHold)
}

// Stepper is a running stepper process.
type Stepper struct {
	cmd     *exec.Cmd
	in      io.Closer // closing it ends the process
	out     io.Closer // reports from the process
	samples chan bolt.Sample
	late    chan struct{} // closed if the process has not ended in time
	done    chan struct{} // closed when the process has ended, or is late

	mu       sync.Mutex // protects the fields below
	requests *gob.Encoder
	stats    Stats
	refused  []RefusalError
	closing  bool
	err      error
}

// maxRefusals is the maximum number of refusals to keep.
const maxRefusals = 100

// ErrKilled means that the stepper process was killed.
var ErrKilled = errors.New("the stepping process was killed; if it held a thread, the target was killed with it")

// ErrHolding means that the stepper process has not ended in time. It continues on its
// own.
var ErrHolding = errors.New("the process branch-stepper still holds a thread that is frozen or gets no CPU: do not kill it; it releases the thread and exits as soon as the thread runs again")

// endWait is how long the stepper process may take to end. A variable for tests.
var endWait = 10 * time.Second

// Start starts to step the processes with the given IDs; [Stepper.Add] adds more. If none
// of them can be stepped, the error joins their [RefusalError]s. Stepping stops when ctx
// is done.
func Start(ctx context.Context, pids []int, opts Options) (*Stepper, error) {
	opts = opts.withDefaults()
	// This name keeps it from matching "pkill -KILL -f fulgur".
	cmd := exec.Command("/proc/self/exe", Subcommand)
	cmd.Stderr = os.Stderr
	// A session of its own, so that Ctrl-C does not reach it and its priority is not
	// relative to ours (autogroup).
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start stepping: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start stepping: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start stepping: %w", err)
	}
	s := &Stepper{
		cmd: cmd, in: in, out: out, requests: gob.NewEncoder(in),
		samples: make(chan bolt.Sample, 256), late: make(chan struct{}), done: make(chan struct{}),
	}
	reports := gob.NewDecoder(out)
	var first report
	err = s.requests.Encode(request{Options: &opts, Add: pids})
	if err == nil {
		err = reports.Decode(&first)
	}
	s.refused = first.Refused
	if err == nil && len(pids) > 0 && len(first.Refused) >= len(pids) {
		err = joined(first.Refused)
	}
	if err != nil {
		_ = in.Close()
		_ = cmd.Wait()
		return nil, fmt.Errorf("start stepping: %w", err)
	}
	go s.receive(reports)
	stop := context.AfterFunc(ctx, s.Stop)
	go func() {
		<-s.done
		stop()
	}()
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.MaxOverhead <= 0 {
		o.MaxOverhead = DefaultOverhead
	}
	if o.BurstMax <= 0 {
		o.BurstMax = DefaultBurstMax
	}
	return o
}

func joined(refused []RefusalError) error {
	var errs []error
	for _, r := range refused {
		errs = append(errs, r)
	}
	return errors.Join(errs...)
}

// receive processes the reports until the process ends.
func (s *Stepper) receive(reports *gob.Decoder) {
	for {
		var r report
		if reports.Decode(&r) != nil {
			break
		}
		s.mu.Lock()
		if r.Stats != nil {
			s.stats = *r.Stats
		}
		s.refused = append(s.refused, r.Refused...)
		s.refused = s.refused[:min(len(s.refused), maxRefusals)]
		s.mu.Unlock()
		if r.Sample != nil {
			s.samples <- *r.Sample
		}
	}
	err := s.awaitEnd()
	s.mu.Lock()
	switch {
	case errors.Is(err, ErrHolding):
		s.err = fmt.Errorf("process %d: %w", s.PID(), err)
	case err != nil:
		s.err = fmt.Errorf("%w (%w)", ErrKilled, err)
	case !s.closing:
		s.err = errors.New("the stepping process has exited")
	}
	s.mu.Unlock()
	close(s.done)
	close(s.samples)
}

// awaitEnd returns when the process, which has closed its reports, has ended or is late.
func (s *Stepper) awaitEnd() error {
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-s.late:
		return ErrHolding
	}
}

// Samples returns the channel of samples: the branches that a thread took in a burst, at its end.
// Predictions are unknown, and the thread did not execute another program during the burst. The caller
// must drain the channel. It is closed when stepping has ended.
func (s *Stepper) Samples() <-chan bolt.Sample { return s.samples }

// Add also steps another process. If that is not possible, the process is refused, see
// [Stepper.Stats], unless it has ended.
func (s *Stepper) Add(pid int) error { return s.request(request{Add: []int{pid}}) }

// Drop stops stepping a process, after the current burst.
func (s *Stepper) Drop(pid int) error { return s.request(request{Drop: []int{pid}}) }

// request sends a request. If the process has ended, [Stepper.Err] returns the reason.
func (s *Stepper) request(r request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.requests.Encode(r); err != nil && !errors.Is(err, syscall.EPIPE) && !s.closing {
		return fmt.Errorf("send to the stepping process: %w", err)
	}
	return nil
}

// PID returns the ID of the stepper process.
func (s *Stepper) PID() int { return s.cmd.Process.Pid }

// Err returns why stepping has ended, or nil if it has not, or has ended normally.
func (s *Stepper) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Stats returns the statistics and the first 100 refusals. They lag by up to a second
// while stepping, and are exact at the end.
func (s *Stepper) Stats() (Stats, []RefusalError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats, s.refused
}

// Stop ends stepping after the current burst. The remaining samples follow, then the
// channel is closed.
func (s *Stepper) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		_ = s.in.Close() // the other end notices in any case
		time.AfterFunc(endWait, func() {
			close(s.late)
			_ = s.out.Close() // receive stops reading
		})
	}
}

// Close ends stepping after the current burst, discards samples that were not received,
// and returns the error of [Stepper.Err].
func (s *Stepper) Close() error {
	s.Stop()
	for range s.samples {
	}
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
