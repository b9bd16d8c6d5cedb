package jumps

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/symbols/instruction"
)

// openTime is the time that a window counts.
const openTime = 5 * time.Millisecond

// maxWindows is the number of windows that are remembered one by one, for the rates: hours,
// in some hundred bytes each.
const maxWindows = 1 << 16

// choose returns the jumps of the next window of uprobes, with the anchors.
func (c *Counter) choose() []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := c.byUprobes.take(c.group, c.allowed, func() []uint32 {
		c.counts.chooseAnchors()
		return c.deal(func(j *Jump) bool { return !j.Breakpoint })
	})
	for _, index := range c.counts.anchors {
		if !slices.Contains(group, index) && c.allowed(index) {
			group = append(group, index)
		}
	}
	slices.Sort(group)
	return group
}

// allowed reports whether a jump may get a probe.
func (c *Counter) allowed(index uint32) bool {
	if c.refused[index] {
		return false
	}
	addr := c.counts.Jumps[index].Address
	f := c.program.Function(addr)
	if f != nil && !c.compared[f] {
		same, known := c.o.Compare(f.Start, f.Code())
		if !known {
			return false // for now
		}
		c.compared[f] = true
		if !same {
			c.program.LeaveOut(addr, "differs in memory from the file")
			f = nil
		}
	}
	if f == nil {
		c.refused[index] = true
		return false
	}
	// The process may have changed the code since, or this may be another process. Code with
	// another profiler's probes is equal to the file again later.
	code := f.Code()[addr-f.Start:]
	same, known := c.o.Compare(addr, code[:min(c.counts.Jumps[index].Instruction.Size, len(code))])
	if known && !same {
		c.stats.Changed++
	}
	return same && known
}

// window counts a group of jumps for a moment.
func (c *Counter) window(group []uint32) error {
	o := uprobe.Options{Multi: true, Urgent: true, Ending: c.stop}
	before := make([]bpf.JumpJumpCount, len(group))
	c.mu.Lock()
	for i, index := range group {
		j := c.counts.Jumps[index]
		offset, ok := c.o.Offset(j.Address)
		if !ok {
			c.mu.Unlock()
			return fmt.Errorf("jump at %#x: no bytes of the file", j.Address)
		}
		cookie, err := c.describe(index)
		if err != nil {
			c.mu.Unlock()
			return err
		}
		o.Offsets, o.Cookies = append(o.Offsets, offset), append(o.Cookies, cookie)
		before[i].Hits, before[i].Taken = c.kernel.count(index)
	}
	c.mu.Unlock()
	var err error
	if o.PID, err = c.chooseProcess(); err != nil {
		return err
	}

	begin := time.Now()
	if err := errors.Join(c.kernel.objects.LongestStall.Set(uint64(0)), c.kernel.objects.Disturbed.Set(true)); err != nil {
		return err
	}
	var open time.Duration
	var held *uprobe.Link
	err = uprobe.Urgently(func() error {
		attached, err := uprobe.Attach(c.o.File, c.kernel.objects.JumpHit, o)
		if err != nil {
			return err
		}
		opened := time.Now()
		err = c.kernel.objects.Counting.Set(true)
		// This thread itself sleeps, so that it wakes in time on a busy machine.
		length := unix.NsecToTimespec(openTime.Nanoseconds())
		_ = unix.Nanosleep(&length, nil) // a signal shortens the window
		err = errors.Join(err, c.kernel.objects.Counting.Set(false))
		open = time.Since(opened)
		if c.traced() {
			held = attached
			return err
		}
		return errors.Join(err, attached.Close())
	})
	err = errors.Join(err, c.kernel.objects.Disturbed.Set(false))
	disturbed := time.Since(begin)
	if held != nil {
		err = errors.Join(err, c.hold(held))
	}
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil // the process has exited
	case errors.Is(err, errUnsupportedInstruction), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOEXEC):
		return c.narrow(group)
	case err != nil:
		return fmt.Errorf("count jumps: %w", err)
	}
	return c.record(group, before, open, disturbed)
}

// chooseProcess returns the process to attach probes in, 0 for all: then the kernel side selects.
// It may change, as when the first thread of the process ends.
func (c *Counter) chooseProcess() (int, error) {
	pids := uprobe.Processes(c.o.Target)
	if len(pids) != 1 || pids[0] == 0 {
		return 0, nil
	}
	if c.filters == nil {
		filters, err := uprobe.FiltersProcesses(c.kernel.objects.JumpHit)
		if err != nil {
			return 0, fmt.Errorf("count jumps: %w", err)
		}
		c.filters = &filters
	}
	if !*c.filters {
		return 0, nil
	}
	return pids[0], nil
}

// hold closes a window during which a process began to be traced, once none is traced any
// more. Its debugger may have taken a probe for the program's code, and restores it when it
// leaves. As long as the kernel knows the probe, that does no harm.
func (c *Counter) hold(attached *uprobe.Link) error {
	c.mu.Lock()
	c.stats.Held++
	c.mu.Unlock()
	for c.traced() {
		select {
		case <-c.stop:
			c.mu.Lock()
			c.stats.Abandoned = true
			c.mu.Unlock()
			return attached.Close()
		case <-time.After(tracedWait):
		}
	}
	return attached.Close()
}

// errUnsupportedInstruction is ENOTSUPP of the kernel, for an instruction that cannot have
// a uprobe.
const errUnsupportedInstruction = unix.Errno(524)

// narrow finds out which jump of a group the kernel refuses, by counting each half of the
// group, and leaves this jump to breakpoints.
func (c *Counter) narrow(group []uint32) error {
	if len(group) == 1 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leaveToBreakpoints(group[0])
		return nil
	}
	half := len(group) / 2
	if err := c.window(group[:half]); err != nil {
		return err
	}
	return c.window(group[half:])
}

// describe describes a jump to the kernel side, and returns its cookie.
func (c *Counter) describe(index uint32) (cookie uint64, err error) {
	i := c.counts.Jumps[index].Instruction
	cookie = uint64(index)<<bpf.JumpJumpCookieJUMP_INDEX_SHIFT | uint64(i.Condition)
	var o bpf.JumpJumpOperand
	switch {
	case i.Kind != instruction.ConditionalJump:
		cookie |= uint64(bpf.JumpJumpCookieJUMP_INDIRECT)
		o = operand(i)
	case i.Test.Mask != 0:
		cookie |= uint64(bpf.JumpJumpCookieJUMP_TEST)
		if i.Test.Nonzero {
			cookie |= 1
		}
		o = bpf.JumpJumpOperand{Base: i.Test.Register, Displacement: int64(i.Test.Mask)}
	default:
		return cookie, nil
	}
	if err := c.kernel.objects.JumpOperands.Put(index, o); err != nil {
		return 0, fmt.Errorf("describe a jump to the kernel side: %w", err)
	}
	return cookie, nil
}

// operand describes the operand of an indirect jump or call to the kernel side.
func operand(i instruction.Instruction) bpf.JumpJumpOperand {
	o := bpf.JumpJumpOperand{Displacement: i.Operand.Displacement, Base: i.Operand.Base, Index: i.Operand.Index, Scale: i.Operand.Scale}
	if i.Operand.Memory {
		o.Memory = 1
	}
	if i.Operand.Relative {
		o.Relative = 1
		o.Displacement += int64(i.Size) // it is relative to the next instruction
	}
	return o
}

// record adds the counts of a window of uprobes.
func (c *Counter) record(group []uint32, before []bpf.JumpJumpCount, open, disturbed time.Duration) error {
	var stall uint64
	if err := c.kernel.objects.LongestStall.Get(&stall); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	hits, err := c.add(group, before)
	if err != nil {
		return err
	}
	c.stats.Windows++
	c.stats.Open += open
	c.stats.Disturbed += disturbed
	c.adapt(time.Duration(stall))
	w := window{open: open}
	for i, index := range group {
		w.hits = append(w.hits, windowHits{index, uint32(min(hits[i], 1<<32-1))})
		cost := c.conditional
		if c.counts.Jumps[index].Instruction.Kind != instruction.ConditionalJump {
			cost = c.indirect
		}
		c.hits += time.Duration(hits[i]) * cost
	}
	if len(c.counts.windows) < maxWindows {
		c.counts.windows = append(c.counts.windows, w)
	}
	return nil
}

// add adds the counts of a group since before, and follows the outcomes. It returns the hits of each
// jump.
func (c *Counter) add(group []uint32, before []bpf.JumpJumpCount) ([]uint64, error) {
	targets := map[Target]uint64{}
	indirect := slices.ContainsFunc(group, func(i uint32) bool {
		return c.counts.Jumps[i].Instruction.Kind != instruction.ConditionalJump
	})
	if indirect {
		err := drain(c.kernel.objects.JumpTargets, func(k bpf.JumpJumpTarget, n uint64) {
			j := c.counts.Jumps[k.Jump]
			targets[Target{From: j.Address, To: j.Address + uint64(k.Distance)}] += n
		})
		if err != nil {
			return nil, err
		}
	}
	all := make([]uint64, len(group))
	for i, index := range group {
		hits, taken := c.kernel.count(index)
		hits, taken = hits-before[i].Hits, taken-before[i].Taken
		all[i] = hits
		j := &c.counts.Jumps[index]
		j.Windows++
		c.stats.Counted++
		j.Hits += hits
		c.stats.Outcomes += hits
		j.Taken += taken
		if j.Instruction.Kind != instruction.ConditionalJump {
			continue
		}
		if taken > 0 {
			c.reach(j.Instruction.Target)
		}
		if taken < hits {
			c.reach(j.Address + uint64(j.Instruction.Size))
		}
	}
	for t, n := range targets {
		c.led(t, n)
	}
	return all, nil
}

// led counts n times that an indirect jump led to a target.
func (c *Counter) led(t Target, n uint64) {
	if len(c.counts.Targets) >= maxTargets && c.counts.Targets[t] == 0 {
		c.stats.CrowdedTargets += n
		return
	}
	c.counts.Targets[t] += n
	c.reach(t.To)
}

// maxStrikes is the number of strikes after which breakpoints replace uprobes. A long stall of the
// smallest group is a strike, and a short stall takes one back.
const maxStrikes = 3

// adapt chooses the size of the groups by the longest wait of a thread in a window, or lets
// breakpoints replace uprobes.
func (c *Counter) adapt(stall time.Duration) {
	c.stats.LongestStall = max(c.stats.LongestStall, stall)
	smallest := c.group == smallestGroup
	switch {
	case stall > c.o.MaxStall:
		c.stats.Stalls++
		c.group = max(c.group/2, smallestGroup)
		if smallest {
			c.strikes++
		}
	case stall < c.o.MaxStall/2:
		c.group = min(c.group+1, largestGroup)
		c.strikes = max(c.strikes-1, 0)
	}
	if c.strikes >= maxStrikes && c.o.Probes == Any && c.breakpoints != nil {
		c.fallBack(fmt.Sprintf("uprobes stalled a thread for up to %v", c.stats.LongestStall.Round(100*time.Microsecond)))
	}
}
