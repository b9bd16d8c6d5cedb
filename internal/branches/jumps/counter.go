// Package jumps counts the outcomes of a program's conditional and indirect jumps by
// uprobes and hardware breakpoints, on processors that do not record branches.
//
// # Uprobes
//
// A window attaches probes to a group of jumps with one uprobe_multi link, counts for some
// milliseconds, and detaches them. The kernel emulates a conditional jump on which a probe
// is, so that a hit costs about a microsecond; the target's thread executes an indirect
// jump elsewhere, which costs a few. Jumps to count are found by samples of the
// instruction pointer, and from there by following the outcomes.
//
// # Breakpoints
//
// Hardware breakpoints count up to three jumps of one thread at a time, a limited number of times.
// Their hits cost up to ten times as much as those of uprobes, and processors have few breakpoints,
// but they change no code. They count what uprobes cannot: jumps with some prefixes, jumps in
// restartable sequences, which the kernel aborts when it schedules a thread, not at an exception, and
// indirect calls, which the kernel executes elsewhere and gets wrong under a shadow stack. With
// [Breakpoints] they count all jumps. See [Jump] for what they do not show. On machines without
// breakpoints, uprobes count indirect calls if the machine has no shadow stacks, and
// [Counter.Uncountable] lists the rest.
//
// # Harm
//
// A uprobe is a breakpoint in the target's code. It must be on the first byte of an
// instruction, for which [cfg] vouches. Before a function gets its first probe, its code
// in memory is compared with the file, so that code that was changed at run time is not
// touched; the jumps themselves are compared again before each window. No uprobe is in a restartable
// sequence, which the kernel could not abort while the thread executes the jump elsewhere. Closing the link
// removes the probes, and so does a helper process if fulgur is killed, at any time. There are
// no windows while a process is traced, because its debugger may write breakpoints, too; if
// one comes during a window, the probes stay until it leaves. Ctrl-Z stops fulgur between
// windows. The kernel handles fork, exec, exit and the unloading of a library.
//
// # Cost
//
// While probes are attached and detached, threads that enter changed code wait for the
// lock of the address space. The counter measures what it costs: samples of the target's
// code show its progress with and without probes, and so the time lost. Windows are spaced
// out so that the lost share stays below [Options.MaxOverhead]. The kernel side measures
// how long threads wait at a time; the groups become smaller until this is less than
// [Options.MaxStall].
//
// # Comparing windows
//
// Each window counts another group, and the target does not run equally fast in all of
// them. Therefore most groups share anchors, jumps of middling heat, whose counts tell how
// far the program got. See [Counts.Rates].
package jumps

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/branches/cfg"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/symbols/instruction"
)

// Defaults of [Options].
const (
	// DefaultOverhead is for processes that others depend on, CommandOverhead for a
	// command that is started only to be measured.
	DefaultOverhead = 0.05
	CommandOverhead = 0.5
	// DefaultStall is the longest time that a thread should be held up.
	DefaultStall = 10 * time.Millisecond
	// DefaultFrequency is the rate of samples, in Hz and CPU.
	DefaultFrequency = 499
)

// Probes are means of counting jumps.
type Probes int

const (
	// Uprobes uses uprobes, and hardware breakpoints for what these cannot count.
	Uprobes Probes = iota
	// Breakpoints uses hardware breakpoints only.
	Breakpoints
	// Any is Uprobes, but changes to Breakpoints if uprobes cannot count the file, or if they
	// stall threads for too long.
	Any
)

// Options configure a [Counter]. All fields are required.
type Options struct {
	Target target.Target
	Probes Probes
	// Program is the code of File, the binary whose jumps to count. The processes must
	// map File itself, not a copy.
	Program *cfg.Program
	File    *safeopen.File
	// Offset returns the file offset of a link-time address.
	Offset func(addr uint64) (uint64, bool)
	// Bias returns how much higher addresses are in the memory of a process than at link time. It
	// and Compare are called by another goroutine.
	Bias func(pid int) (bias uint64, ok bool)
	// Compare reports whether the code at a link-time address is the same in memory as in
	// the file, if that is known.
	Compare func(addr uint64, code []byte) (same, known bool)
	// MaxOverhead is the share of the target's time that may be lost: 0.05 means five
	// percent. MaxStall is the longest time that a thread should be held up at a time.
	MaxOverhead float64
	MaxStall    time.Duration
	// Frequency is the rate of samples, in Hz and CPU.
	Frequency uint64
}

// Counter counts jumps.
type Counter struct {
	o      Options
	kernel *kernelSide
	// filters reports whether the kernel can attach probes in one process; nil until it is known.
	filters *bool

	started bool
	suspend chan os.Signal // Ctrl-Z
	stop    chan struct{}
	done    chan struct{}
	err     error // of the windows; valid when done is closed

	breakpoints *breakpoints // nil if there are none
	// callsByUprobes is whether uprobes may count indirect calls, if breakpoints cannot.
	callsByUprobes bool

	mu            sync.Mutex
	program       *cfg.Program
	counts        Counts
	index         map[uint64]uint32 // of jumps by address
	stats         Stats
	byUprobes     round // of the jumps counted by uprobes
	byBreakpoints round // of those counted by breakpoints
	compared      map[*cfg.Function]bool
	// refused jumps have lost their function, or cannot be counted.
	refused []bool
	group   int // size of a group
	strikes int // see maxStrikes
	pace    pace
	hits    time.Duration // CPU time of the hits of uprobes
	// The CPU time of a hit of a conditional jump, and of an indirect one.
	conditional, indirect time.Duration
}

// Sizes of a group, in jumps.
const (
	largestGroup  = 50
	smallestGroup = 6
	anchorCount   = 20
)

// Stats describe the work of a [Counter].
type Stats struct {
	// Windows is the number of windows, and Jumps the number of jumps found. Crowded is the
	// number of jumps beyond the limit.
	Windows, Jumps, Crowded uint64
	// CrowdedTargets is the number of outcomes of indirect jumps whose target is beyond
	// the limit.
	CrowdedTargets uint64
	// Outcomes is the number of hits, and Counted the sum of [Jump.Windows] over all jumps.
	Outcomes, Counted uint64
	// Open is the total time during which windows counted, and Disturbed the total time
	// during which probes were attached, being attached or being detached.
	Open, Disturbed time.Duration
	// LongestStall is the longest time that a thread waited uninterruptibly in the kernel
	// while there were probes, for any reason, and Stalls the number of windows in
	// which one waited for longer than allowed.
	LongestStall time.Duration
	Stalls       uint64
	// Overhead is the share of the target's progress that was lost, from 0 to 1, as estimated
	// from samples of its code and from the cost of hits. It is valid if Measured.
	Overhead float64
	Measured bool
	// Lost is the number of samples and targets for which there was no room.
	Lost uint64
	// Refused is the number of jumps that can have neither a uprobe nor a breakpoint.
	Refused uint64
	// NoBreakpoints is why there are no breakpoints, if there are none.
	NoBreakpoints string
	// Breakpoints describes the windows of hardware breakpoints, which the fields above do not
	// count, except for Outcomes and Counted.
	Breakpoints BreakpointStats
	// Fallback is why breakpoints replaced uprobes, if they did.
	Fallback string
	// Traced is the number of windows that were left out because a process was traced.
	Traced uint64
	// Held is the number of windows whose probes stayed because a process was traced at their
	// end. Abandoned is set if it still was when the counting ended.
	Held      uint64
	Abandoned bool
	// Unanswered is set if the kernel did not attach or detach probes in time, as on a file
	// system that does not respond. This window is lost, and counting ended with it.
	Unanswered bool
	// Changed is the number of times that a jump was not counted in a window because its
	// code in memory differed from the file.
	Changed uint64
}

// New loads the kernel side. Nothing is counted yet. [Counter.Close] releases it.
func New(o Options) (*Counter, error) {
	if m := o.Program.Machine(); m != machine {
		return nil, fmt.Errorf("%w: the file is for %v", ErrUnsupported, m)
	}
	c := &Counter{
		o: o, program: o.Program, group: largestGroup,
		compared: map[*cfg.Function]bool{}, index: map[uint64]uint32{},
		counts: Counts{Targets: map[Target]uint64{}}, pace: pace{frequency: o.Frequency},
		suspend: make(chan os.Signal, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	var noUprobes error // with Any
	if c.o.Probes != Breakpoints {
		err := checkUprobes(o)
		switch {
		case errors.Is(err, ErrUnsupported) && o.Probes == Any:
			c.o.Probes, c.stats.Fallback, noUprobes = Breakpoints, err.Error(), err
		case err != nil:
			return nil, err
		}
	}
	var err error
	if c.o.Probes != Breakpoints {
		if c.conditional, err = uprobe.Cost(conditionalCode); err != nil {
			return nil, err
		}
		if c.indirect, err = uprobe.Cost(indirectCode); err != nil {
			return nil, err
		}
	}
	if c.kernel, err = load(c.o); err != nil {
		return nil, err
	}
	c.breakpoints, err = newBreakpoints(c.kernel)
	switch {
	case err == nil:
	case c.o.Probes == Breakpoints || !errors.Is(err, ErrUnsupported):
		if noUprobes != nil {
			err = fmt.Errorf("%w; %w", noUprobes, err)
		}
		return nil, errors.Join(err, c.kernel.close())
	default:
		c.stats.NoBreakpoints = strings.TrimPrefix(err.Error(), ErrUnsupported.Error()+": ")
		c.callsByUprobes = !hasShadowStacks()
	}
	return c, nil
}

// checkUprobes returns an error that wraps [ErrUnsupported] if jumps cannot be counted by uprobes.
func checkUprobes(o Options) error {
	if err := Check(Uprobes); err != nil {
		return err
	}
	if err := uprobe.CheckFile(o.File); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return nil
}

// Start starts to sample, and to count.
func (c *Counter) Start() error {
	if err := c.kernel.events.Enable(); err != nil {
		return err
	}
	c.started = true
	// Before the first window.
	if !signal.Ignored(unix.SIGTSTP) {
		signal.Notify(c.suspend, unix.SIGTSTP)
	}
	go func() {
		defer close(c.done)
		c.err = c.run()
	}()
	return nil
}

// Stop ends the counting. When it returns, there are no probes. It returns the error that
// ended the counting early. If the counter was not started, Stop does nothing.
func (c *Counter) Stop() error {
	if !c.started {
		return nil
	}
	close(c.stop)
	<-c.done
	return errors.Join(c.err, c.kernel.events.Disable())
}

// Err returns the error that ended the counting, or nil if it goes on.
func (c *Counter) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close unloads the kernel side, after [Counter.Stop] if it was started.
func (c *Counter) Close() error { return c.kernel.close() }

// Targets returns the processes that are currently in the target set.
func (c *Counter) Targets() ([]int, error) { return c.kernel.targets.Members() }

// FollowCPUs adjusts to CPUs that came online or went offline.
func (c *Counter) FollowCPUs(online []int) error { return c.kernel.events.Follow(online) }

// Samples calls yield with the samples since the last call: the number of samples of process
// pid at address ip.
func (c *Counter) Samples(yield func(pid int, ip, n uint64)) error {
	return drain(c.kernel.objects.JumpSamples, func(k bpf.JumpExecuted, n uint64) { yield(int(k.Pid), k.Ip, n) })
}

// Sampled notes that the instruction at the link-time address addr was executed.
func (c *Counter) Sampled(addr uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reach(addr)
}

// reach finds the jumps that are executed after the instruction at addr.
func (c *Counter) reach(addr uint64) { c.program.Reach(addr, c.found) }

// found adds a jump or an indirect call.
func (c *Counter) found(addr uint64, i instruction.Instruction) {
	if len(c.counts.Jumps) >= maxJumps {
		c.stats.Crowded++
		return
	}
	index := uint32(len(c.counts.Jumps))
	c.counts.Jumps = append(c.counts.Jumps, Jump{Address: addr, Instruction: i})
	c.index[addr] = index
	c.refused = append(c.refused, false)
	switch {
	case i.Operand.Segment, i.Operand.Signed: // the kernel side knows neither the base nor the key
		c.refuse(index)
	case c.program.Exclusive(addr): // a hit would make the store fail, so that the loop would not end
		c.refuse(index)
	case c.o.Probes == Breakpoints, i.Kind == instruction.IndirectCall && !c.callsByUprobes:
		c.leaveToBreakpoints(index)
	case c.program.Restartable(addr):
		c.leaveToBreakpoints(index)
	case i.Prefixed: // only the kernel knows the prefixes that it can emulate
		c.leaveToBreakpoints(index)
	default:
		c.byUprobes.fresh = append(c.byUprobes.fresh, index)
	}
}

// refuse notes that a jump cannot be counted.
func (c *Counter) refuse(index uint32) {
	c.refused[index] = true
	c.stats.Refused++
}

// Counts returns the counts. The counter must have stopped.
func (c *Counter) Counts() *Counts { return &c.counts }

// Uncountable returns the addresses of the jumps that were found but not counted, because they can have
// neither a uprobe nor a breakpoint, or are in code that was changed. The counter must have stopped.
func (c *Counter) Uncountable() map[uint64]bool {
	all := map[uint64]bool{}
	for i, j := range c.counts.Jumps {
		if c.refused[i] {
			all[j.Address] = true
		}
	}
	return all
}

// Stats returns the statistics so far.
func (c *Counter) Stats() (Stats, error) {
	c.mu.Lock()
	s := c.stats
	s.Jumps = uint64(len(c.counts.Jumps))
	c.mu.Unlock()
	lost, err := c.kernel.lost()
	s.Lost = lost
	if err != nil {
		return s, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Overhead, s.Measured = c.pace.overall()
	if b := c.breakpoints; b != nil {
		s.Breakpoints.HitCost = b.costs.hit
		if b.busy > 0 && (s.Measured || s.Windows == 0) {
			s.Overhead, s.Measured = s.Overhead+b.overhead(), true
		}
	}
	return s, nil
}

// run opens windows until the counter stops.
func (c *Counter) run() (err error) {
	runtime.LockOSThread() // for Urgently; the thread ends with this goroutine if it cannot return to normal
	defer signal.Stop(c.suspend)
	release := func() error { return nil }
	if c.o.Probes != Breakpoints {
		if release, err = uprobe.Keep(); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, release()) }()
	begin := time.Now()
	var due time.Time // of the next window of uprobes
	for {
		wait := idleWait
		if c.usesUprobes() {
			if until := time.Until(due); until <= 0 {
				rest, err := c.probe(time.Since(begin))
				if errors.Is(err, uprobe.ErrNoAnswer) {
					c.mu.Lock()
					c.stats.Unanswered = true
					c.mu.Unlock()
					return nil // the counts so far are valid
				}
				if err != nil {
					return err
				}
				wait = vary(rest)
				due = time.Now().Add(wait)
			} else {
				wait = until
			}
		} else if err := c.measure(time.Since(begin)); err != nil {
			return err // the loss to earlier uprobes is spread over more and more time
		}
		opened, err := c.breakpointTurn(wait)
		if err != nil {
			return err
		}
		if opened {
			wait = vary(breakRest)
		} else if c.hasBreakpointJumps() {
			wait = min(wait, vary(idleWait))
		}
		timer := time.NewTimer(wait)
		select {
		case <-c.stop:
			timer.Stop()
			runtime.UnlockOSThread()
			return nil
		case <-c.suspend: // suspend on Ctrl-Z only while there are no probes
			// Send the signal to this thread: a signal to the process may first stop another
			// thread, while this one opens a window.
			if err := unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP); err != nil {
				return err
			}
		case <-timer.C:
		}
	}
}

// vary returns about d, to avoid lockstep with periodic work of the program.
func vary(d time.Duration) time.Duration { return time.Duration(float64(d) * (0.5 + rand.Float64())) }

// usesUprobes reports whether uprobes count jumps, not breakpoints alone.
func (c *Counter) usesUprobes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.o.Probes != Breakpoints
}

// idleWait is the pause if there is nothing to count, and tracedWait if a process is traced.
const (
	idleWait   = 20 * time.Millisecond
	tracedWait = 200 * time.Millisecond
)

// probe opens a window of uprobes, and returns the pause after it. First it measures what the last
// window cost.
func (c *Counter) probe(elapsed time.Duration) (rest time.Duration, err error) {
	if err := c.measure(elapsed); err != nil {
		return 0, err
	}
	if c.traced() {
		c.mu.Lock()
		c.stats.Traced++
		c.mu.Unlock()
		return tracedWait, nil
	}
	group := c.choose()
	if len(group) == 0 {
		return idleWait, nil
	}
	if err := c.window(group); err != nil {
		return 0, err
	}
	share := c.o.MaxOverhead
	if c.hasBreakpointJumps() {
		share *= 1 - breakShare
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pace.rest(share), nil
}

// measure reads the target's progress since the first window.
func (c *Counter) measure(elapsed time.Duration) error {
	progress, err := c.kernel.progress()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stats.Windows == 0 {
		return err
	}
	c.pace.update(progress, elapsed, c.stats.Disturbed, c.hits)
	return err
}
