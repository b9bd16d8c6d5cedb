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

// Subcommand is fulgur's hidden command that runs [Run]: the program executes
// itself with it.
const Subcommand = "branch-stepper"

// What bursts may cost at most if nothing else is asked for.
const (
	// DefaultOverhead is for processes that others rely on.
	DefaultOverhead = 0.1
	// CommandOverhead is for a command that runs to be measured.
	CommandOverhead = 0.5
	// DefaultBurstMax is the longest time that a thread is held.
	DefaultBurstMax = 20 * time.Millisecond
)

// MaxBranches is how many branches a sample has at most: as many as most
// processors record that can.
const MaxBranches = 32

// Options say what to step and how much.
type Options struct {
	// MaxOverhead bounds how much longer each thread takes for its work: 0.1
	// is a tenth. 0 stands for DefaultOverhead.
	MaxOverhead float64
	// BurstMax is the longest time to hold a thread, 0 for DefaultBurstMax.
	BurstMax time.Duration
}

// Sample is the branches that a thread took in one burst.
type Sample struct {
	// PID is the process, TID the thread, in our pid namespace.
	PID, TID int
	// Time is the end of the burst, in nanoseconds of CLOCK_MONOTONIC. The
	// thread has not executed another program during the burst.
	Time uint64
	// Entries are the branches, the newest first. Predictions are not known.
	Entries []bolt.Entry
}

// Stats says what stepping has done so far.
type Stats struct {
	// Threads is the number of threads seen, Bursts that of their bursts,
	// Steps that of the instructions, Records that of the branches taken.
	Threads, Bursts, Steps, Records uint64
	// How bursts have ended: with enough branches, at their deadline, before
	// a system call or another instruction that must not be stepped over, at
	// a signal, in a long string instruction, by the kernel moving the
	// thread.
	Full, Deadline, Sensitive, Signal, Repeated, Moved uint64
	// Interrupted is the number of system calls that were made to return
	// EINTR, see the package's comment.
	Interrupted uint64
	// Held is how long threads were held in all, LongestHold how long at
	// most at a time, their waits for a processor in between included.
	Held, LongestHold time.Duration
	// MaxSlowdown is how much longer a thread took for its work at most, as
	// far as threads are concerned that ran for a second: 0.1 is a tenth.
	MaxSlowdown float64
}

// add adds what was done in a burst.
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
	out     io.Closer // its reports
	samples chan Sample
	late    chan struct{} // closed when the process should have ended
	done    chan struct{} // closed when the process has ended, or is late

	mu       sync.Mutex // of what follows
	requests *gob.Encoder
	stats    Stats
	refused  []RefusalError
	closing  bool
	err      error
}

// maxRefusals is how many refusals are kept.
const maxRefusals = 100

// ErrKilled means that the stepper process was killed.
var ErrKilled = errors.New("the process that steps was killed; if it was stepping a thread just then, that has taken its process along")

// ErrHolding means that the stepper process has not ended in time. It goes on by
// itself.
var ErrHolding = errors.New("the process branch-stepper still holds a thread that is frozen or gets no CPU; it releases the thread and exits as soon as the thread runs again: do not kill it before")

// endWait is how long the stepper process may take to end. Tests change it.
var endWait = 10 * time.Second

// Start starts to step the processes with the given IDs; more can follow with
// [Stepper.Add]. If none of the given can be stepped, the error is their
// [RefusalError], joined. When ctx ends, stepping does.
func Start(ctx context.Context, pids []int, opts Options) (*Stepper, error) {
	opts = opts.withDefaults()
	// Under this name, so that "pkill -KILL -f fulgur" is not for it either.
	cmd := exec.Command("/proc/self/exe", Subcommand)
	cmd.Stderr = os.Stderr
	// A session of its own: Ctrl-C is not for it, and its priority is not
	// one among ours alone.
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
		samples: make(chan Sample, 256), late: make(chan struct{}), done: make(chan struct{}),
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

// receive takes the process's reports until it ends.
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
		s.err = errors.New("the process that steps has ended")
	}
	s.mu.Unlock()
	close(s.done)
	close(s.samples)
}

// awaitEnd returns when the process, which reports no more, has ended, or is
// late.
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

// Samples returns the channel of the samples, which must be drained. It is
// closed when stepping has ended.
func (s *Stepper) Samples() <-chan Sample { return s.samples }

// Add steps another process too. One that cannot be is refused, see
// [Stepper.Stats], unless it has ended.
func (s *Stepper) Add(pid int) error { return s.request(request{Add: []int{pid}}) }

// Drop steps a process no more, from the end of a burst that it may be in.
func (s *Stepper) Drop(pid int) error { return s.request(request{Drop: []int{pid}}) }

// request asks the process for something. That it has ended [Stepper.Err]
// tells.
func (s *Stepper) request(r request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.requests.Encode(r); err != nil && !errors.Is(err, syscall.EPIPE) && !s.closing {
		return fmt.Errorf("ask the process that steps: %w", err)
	}
	return nil
}

// PID is the process that steps.
func (s *Stepper) PID() int { return s.cmd.Process.Pid }

// Err returns why stepping has ended, nil if it has not, or if it was ended by
// us.
func (s *Stepper) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Stats returns what was done, up to date to a second, and at the end
// precisely, and the first 100 refusals.
func (s *Stepper) Stats() (Stats, []RefusalError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats, s.refused
}

// Stop asks for stepping to end after the current burst. The samples that there
// are by then follow, and the channel is closed.
func (s *Stepper) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		_ = s.in.Close() // the other end sees it in any case
		time.AfterFunc(endWait, func() {
			close(s.late)
			_ = s.out.Close() // receive reads no more
		})
	}
}

// Close ends stepping after the current burst, throws away samples that were
// not received, and tells what went wrong.
func (s *Stepper) Close() error {
	s.Stop()
	for range s.samples {
	}
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
