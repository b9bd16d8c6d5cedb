package jumps

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/symbols/instruction"
)

const (
	// slots is the number of breakpoints, and recentThreads the number of threads that the kernel
	// side remembers.
	slots         = int(bpf.JumpJumpLimitJUMP_BREAKPOINTS)
	recentThreads = int(bpf.JumpJumpLimitJUMP_THREADS)
	// breakTime is the longest time that a window of breakpoints lasts. Most end earlier, when each
	// breakpoint has reached its limit of hits.
	breakTime = 10 * time.Millisecond
	// breakStep is the time between looks at the hits, breakRest the pause between windows.
	breakStep, breakRest = time.Millisecond, time.Millisecond
	// breakLoss is the most time that a window should take from its thread. The limit of hits
	// follows from it.
	breakLoss            = 1500 * time.Microsecond
	fewestHits, mostHits = 8, 256
	// breakShare is the share of the overhead that is for breakpoints if there are uprobes, too.
	breakShare = 0.2
)

// BreakpointStats describe the windows of hardware breakpoints.
type BreakpointStats struct {
	// Windows is the number of windows, and Hits the number of hits.
	Windows, Hits uint64
	// HitCost is the time that a hit takes, measured in this process.
	HitCost time.Duration
	// Taken is the number of windows that had too few breakpoints, or none, because other tools used
	// them, and Gone the number of windows that failed because the thread had exited.
	Taken, Gone uint64
}

// breakpoints counts jumps by hardware breakpoints. A window counts up to three jumps of one thread,
// a limited number of times. It changes no code, so nothing that may happen to the thread or to fulgur
// can harm the thread. The kernel disables a breakpoint at its limit, even if fulgur is late.
//
// Samples cannot show what hits cost: interrupts are disabled during a hit, and the interrupt
// that takes a sample comes right after it. So the cost of a hit is measured once.
type breakpoints struct {
	kernel *kernelSide
	costs  breakpointCosts
	limit  int           // of the hits of a breakpoint in a window
	spent  time.Duration // cost of all windows
	// forgiven is the time that the target could have lost so far, but did not, beyond maxCredit. Later
	// windows may not take it.
	forgiven time.Duration
	busy     time.Duration // CPU time of the target
}

// coldness is the time that a hit costs a program, relative to the time that it takes in a loop: caches and
// branch predictors are cold after it. redis lost 1.2 and 1.9 times the time of the hits in two measurements
// (bench/bolt -cost).
const coldness = 1.6

// maxCredit limits how much time windows in a row may take after a pause.
const maxCredit = 2 * breakLoss

// checkBreakpoints returns an error that wraps [ErrUnsupported] if there are no hardware breakpoints
// for code.
func checkBreakpoints() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e, err := perfevent.Open(breakpointAttr(uint64(codeOf(nothing))), 0, -1)
	if err != nil {
		return fmt.Errorf("%w: hardware breakpoints: %w", ErrUnsupported, err)
	}
	err = e.Enable()
	nothing()
	r, readErr := e.Read()
	if err := errors.Join(err, readErr, e.Close()); err != nil {
		return fmt.Errorf("hardware breakpoints: %w", err)
	}
	if r.Count == 0 { // some hypervisors ignore them
		return fmt.Errorf("%w: hardware breakpoints have no effect on this machine", ErrUnsupported)
	}
	return nil
}

// newBreakpoints measures the cost of breakpoints.
func newBreakpoints(s *kernelSide) (*breakpoints, error) {
	if err := checkBreakpoints(); err != nil {
		return nil, err
	}
	b := &breakpoints{kernel: s}
	var err error
	if b.costs, err = s.breakpointCosts(); err != nil {
		return nil, fmt.Errorf("measure the cost of breakpoints: %w", err)
	}
	b.limit = int(min(max(breakLoss/time.Duration(slots)/max(b.costs.hit, 1), fewestHits), mostHits))
	return b, nil
}

// breakpointAttr configures a breakpoint for code at an address.
func breakpointAttr(addr uint64) perfevent.Attr {
	return perfevent.Attr{
		Type: unix.PERF_TYPE_BREAKPOINT, BreakpointType: perfevent.BreakpointExecute,
		Config1: addr, Config2: breakpointLength,
		Period: 1, Disabled: true, ExcludeKernel: true,
	}
}

// open opens the breakpoint of a slot in a thread, and enables it. limit is the limit of its hits.
func (s *kernelSide) open(slot int, tid int, addr, cookie uint64, limit int) (*perfevent.Event, error) {
	if err := s.objects.JumpBreakpoints.Put(uint32(slot), bpf.JumpJumpBreakpoint{Ip: addr, Cookie: cookie}); err != nil {
		return nil, err
	}
	e, err := perfevent.Open(breakpointAttr(addr), tid, -1)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(e.AttachBPF(s.objects.JumpBreak.FD()), e.Refresh(limit)); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// allows reports whether windows may cost more, if the target may lose a share of its CPU time.
func (b *breakpoints) allows(share float64) bool {
	allowance := time.Duration(share*float64(b.busy)) - b.forgiven
	if credit := allowance - b.spent; credit > maxCredit {
		b.forgiven += credit - maxCredit
	}
	return b.spent <= allowance
}

// overhead returns the share of the target's time that windows have taken.
func (b *breakpoints) overhead() float64 { return float64(b.spent) / float64(b.busy+b.spent) }

// hasBreakpointJumps reports whether there are jumps for breakpoints.
func (c *Counter) hasBreakpointJumps() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.breakpoints != nil && (len(c.byBreakpoints.fresh) > 0 || len(c.byBreakpoints.deck) > 0 || c.stats.Breakpoints.Windows > 0)
}

// leaveToBreakpoints lets breakpoints count a jump from now on, if there are any.
func (c *Counter) leaveToBreakpoints(index uint32) {
	if c.breakpoints == nil {
		c.refuse(index)
		return
	}
	c.counts.Jumps[index].Breakpoint = true
	c.byBreakpoints.fresh = append(c.byBreakpoints.fresh, index)
}

// fallBack lets breakpoints count all jumps from now on. why is the reason.
func (c *Counter) fallBack(why string) {
	c.o.Probes, c.stats.Fallback = Breakpoints, why
	c.byUprobes = round{}
	for i := range c.counts.Jumps {
		if !c.refused[i] && !c.counts.Jumps[i].Breakpoint {
			c.leaveToBreakpoints(uint32(i))
		}
	}
}

// breakpointTurn opens a window of breakpoints, if there is something to count and the target may lose
// more of its CPU time. most is the time until the next window of uprobes.
func (c *Counter) breakpointTurn(most time.Duration) (opened bool, err error) {
	if !c.hasBreakpointJumps() || c.usesUprobes() && most < breakTime {
		return false, nil
	}
	progress, err := c.kernel.progress()
	if err != nil {
		return false, err
	}
	share := c.o.MaxOverhead
	if c.usesUprobes() {
		share *= breakShare
	}
	b := c.breakpoints
	c.mu.Lock()
	sampled := time.Duration(progress[0]+progress[1]) * time.Second / time.Duration(c.o.Frequency)
	b.busy = max(sampled-b.spent, 0)
	allowed := b.allows(share)
	c.mu.Unlock()
	if !allowed {
		return false, nil
	}
	at, t, bias, err := c.recentThread()
	if err != nil || t.Tid == 0 {
		return false, err
	}
	group := c.chooseForBreakpoints(t.Ip - bias)
	if len(group) == 0 {
		return false, nil
	}
	err = c.breakpointWindow(t, bias, group)
	switch {
	case errors.Is(err, errGone):
		// Forget the thread, and let another one be chosen at once.
		c.mu.Lock()
		c.stats.Breakpoints.Gone++
		c.mu.Unlock()
		return true, c.kernel.objects.JumpThreads.Put(at, bpf.JumpJumpThread{})
	case errors.Is(err, errTaken):
		c.mu.Lock()
		c.stats.Breakpoints.Taken++
		c.mu.Unlock()
		return false, nil
	}
	return true, err
}

// Reasons why there was no window.
var (
	errGone  = errors.New("the thread has exited")
	errTaken = errors.New("other tools use all breakpoints")
)

// recentThread returns a random thread that ran recently, its index in the kernel side's table, and
// the bias of its process. The probability is proportional to its CPU time.
func (c *Counter) recentThread() (at uint32, t bpf.JumpJumpThread, bias uint64, err error) {
	first := rand.IntN(recentThreads)
	for i := range recentThreads {
		at := uint32((first + i) % recentThreads)
		if err := c.kernel.objects.JumpThreads.Lookup(at, &t); err != nil {
			return at, t, 0, err
		}
		if t.Tid == 0 {
			continue
		}
		if bias, ok := c.o.Bias(int(t.Pid)); ok {
			return at, t, bias, nil
		}
	}
	return 0, bpf.JumpJumpThread{}, 0, nil
}

// chooseForBreakpoints returns the jumps of the next window of breakpoints: the one that follows a
// sampled address, since such jumps matter most, and others in turn.
func (c *Counter) chooseForBreakpoints(addr uint64) (group []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	index, ok := c.jumpAfter(addr)
	if ok && c.allowed(index) {
		group = append(group, index)
	}
	return append(group, c.byBreakpoints.take(slots-len(group), func(i uint32) bool {
		return !(ok && i == index) && c.allowed(i)
	}, func() []uint32 { return c.deal(func(j *Jump) bool { return j.Breakpoint }) })...)
}

// jumpAfter returns the first jump for breakpoints that is certainly executed after the instruction at
// addr.
func (c *Counter) jumpAfter(addr uint64) (index uint32, ok bool) {
	const most = 256 // instructions
	for range most {
		if index, ok := c.index[addr]; ok && c.counts.Jumps[index].Breakpoint {
			return index, true
		}
		i, ok := c.program.At(addr)
		switch {
		case !ok, i.Kind.Ends() && i.Kind != instruction.Jump, i.Kind == instruction.ConditionalJump, i.Kind == instruction.CounterJump:
			return 0, false
		case i.Kind == instruction.Jump:
			addr = i.Target
		default:
			addr += uint64(i.Size)
		}
	}
	return 0, false
}

// breakpointWindow counts a group of jumps of a thread for a moment.
func (c *Counter) breakpointWindow(t bpf.JumpJumpThread, bias uint64, group []uint32) (err error) {
	b := c.breakpoints
	var events []*perfevent.Event
	var before []bpf.JumpJumpCount
	switches := switchesOf(t)
	var none error
	for slot, index := range group {
		c.mu.Lock()
		cookie, err := c.describe(index)
		addr := c.counts.Jumps[index].Address
		c.mu.Unlock()
		if err != nil {
			return errors.Join(err, closeAll(events))
		}
		var count bpf.JumpJumpCount
		count.Hits, count.Taken = c.kernel.count(index)
		e, err := c.kernel.open(slot, int(t.Tid), addr+bias, cookie, b.limit)
		switch {
		case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			none = errGone
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EBUSY):
			none = errTaken
		}
		if none != nil {
			break
		}
		if err != nil {
			return errors.Join(fmt.Errorf("count jumps of thread %d: %w", t.Tid, err), closeAll(events))
		}
		events, before = append(events, e), append(before, count)
	}
	if len(events) == 0 {
		return none
	}
	group = group[:len(events)]
	hits := func() (sum int, all bool) {
		all = true
		for i, index := range group {
			now, _ := c.kernel.count(index)
			n := int(now - before[i].Hits)
			sum, all = sum+n, all && n >= b.limit
		}
		return sum, all
	}
	loss := func() (sum int, all bool, loss time.Duration) {
		sum, all = hits()
		now := max(switchesOf(t), switches)
		each := time.Duration(now-switches)*b.costs.swap + b.costs.arm
		return sum, all, time.Duration(coldness*float64(sum)*float64(b.costs.hit)) + time.Duration(len(group))*each
	}
	for end := time.Now().Add(breakTime); time.Now().Before(end); {
		if _, all, lost := loss(); all || lost > breakLoss {
			break
		}
		time.Sleep(breakStep)
	}
	if err := closeAll(events); err != nil {
		return err
	}
	sum, _, lost := loss()
	c.mu.Lock()
	defer c.mu.Unlock()
	b.spent += lost
	c.stats.Breakpoints.Windows++
	c.stats.Breakpoints.Hits += uint64(sum)
	if errors.Is(none, errTaken) {
		c.stats.Breakpoints.Taken++
	}
	for _, index := range group {
		// The process may have executed another program, or mapped another file there.
		if !c.allowed(index) {
			return drain(c.kernel.objects.JumpTargets, func(bpf.JumpJumpTarget, uint64) {})
		}
	}
	_, err = c.add(group, before)
	return err
}

// switchesOf returns the number of context switches of a thread: breakpoints make each of them slower.
// It returns 0 for a thread that has exited.
func switchesOf(t bpf.JumpJumpThread) uint64 {
	status, err := procfs.Thread(int(t.Pid), int(t.Tid)).Status()
	if err != nil {
		return 0
	}
	return status.Switches
}

// closeAll closes events.
func closeAll(events []*perfevent.Event) error {
	var errs []error
	for _, e := range events {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}
