// Package loop runs a measurement: it releases a launched command, polls the kernel
// side until the time is over, the target has ended or the user interrupts, and
// meanwhile shows a progress line on the terminal.
package loop

import (
	"cmp"
	"context"
	"runtime/debug"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/epoll"
	"fulgur/internal/linux/perfevent"
)

// settleAfter is the time after the start at which the memory of the start is returned to the kernel.
// By then, most unwind tables are ready, and the first names are known. Shorter runs save the work.
const settleAfter = 2 * time.Second

// PollAtMost is the minimum time between polls, unless a measurement sets another.
// While processes start, exit or map files, it is also the interval of polls, so
// that files are opened while they exist. A wakeup for each record would cost those
// processes an interrupt each.
const PollAtMost = 10 * time.Millisecond

// GraceForStacks is how much older than the last poll a late sample may be, in ns.
// From the clock to the ring it takes microseconds, but a virtual CPU may be stopped
// in between.
const GraceForStacks = uint64(time.Second)

const (
	// pollEvery is the maximum time between polls.
	pollEvery = 100 * time.Millisecond
	// pollSlowest limits the time between polls at low rates. Snapshots of stacks wait for
	// a poll, and mappings are kept for [GraceForStacks].
	pollSlowest = 500 * time.Millisecond
	// restUrgent is the minimum time between polls if a descriptor is urgent.
	restUrgent = time.Millisecond
	// followEvery is the interval of checks for CPUs that came or went.
	followEvery = time.Second
)

// Measurement is a measurement that a [Loop] runs.
type Measurement interface {
	// Enable starts sampling.
	Enable() error
	// Poll reads the kernel side's data. It reports whether processes start,
	// exit or map files.
	Poll() (busy bool, err error)
	// PollFDs returns descriptors that request a poll by being readable.
	PollFDs() []int
	// UrgentFDs returns descriptors that request an immediate poll.
	UrgentFDs() []int
	// Targets returns the processes that are currently in the target set.
	Targets() ([]int, error)
	// FollowCPUs adjusts to CPUs that came online or went offline.
	FollowCPUs(online []int) error
	// Progress describes the state of the measurement, for a terminal.
	Progress() (string, error)
}

// Loop runs a measurement until its time is over, its target ends or the context
// ends.
type Loop struct {
	// Target is measured for Limit, after Delay. A Limit of 0 means no limit.
	Target       target.Target
	Limit, Delay time.Duration
	// Rest is the minimum time between polls.
	Rest time.Duration
	// Every is the maximum time between polls, and EveryBusy while processes start, exit
	// or map files. 0 means the defaults.
	Every, EveryBusy time.Duration
	// ReleaseFirst releases a command before sampling is enabled.
	ReleaseFirst bool
	// Enough, if not nil, ends the measurement when it returns true.
	Enough func() bool
	// Due, if not nil, returns the latest time for the next poll.
	Due func() time.Time
	// Settle, if not nil, drops data that only the start needs. The loop calls it once, two seconds
	// after the start, and then returns free memory to the kernel.
	Settle func()
	// Alert is the time after the start during which polls are as frequent as
	// possible.
	Alert time.Duration
	// MemoryLimited means that the caller decides about the limit of memory, with
	// [debug.SetMemoryLimit]. Then collections are rarer.
	MemoryLimited bool

	// Start is when sampling began, and Duration how long it ran.
	Start    time.Time
	Duration time.Duration
	// Missed means that the target ended before sampling began, Interrupted that
	// the context ended before sampling did.
	Missed, Interrupted bool
}

// Pace makes polls rarer at low sampling rates, in samples per second and CPU. Use it only if
// samples of unknown processes are urgent; then no sample waits for a poll. At 19 samples per
// second, polls as frequent as usual would cost more than the samples.
func (l *Loop) Pace(rate uint64) {
	if rate == 0 {
		return
	}
	period := time.Second / time.Duration(rate)
	l.Every = min(max(10*period, pollEvery), pollSlowest)
	l.EveryBusy = min(max(2*period, PollAtMost), pollEvery)
}

// Measure enables the events and polls until the measurement ends. The caller must
// poll once more for the remaining data.
func (l *Loop) Measure(ctx context.Context, m Measurement, line *ProgressLine, launched *target.Launched) error {
	garbage := newCollector(l.MemoryLimited)
	garbage.adjust()
	defer debug.SetGCPercent(gcPercentAtEnd)
	// Watching ends with sampling, even if ctx does not end.
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	gone := l.watch(watch, launched)
	defer line.clear()

	if err := l.begin(ctx, m, launched, gone); err != nil {
		return err
	}
	err := l.collect(ctx, m, garbage, line, gone)
	l.Duration, l.Interrupted = time.Since(l.Start), ctx.Err() != nil
	return err
}

// watch returns a channel that is closed when the target has ended, nil for targets
// that do not end.
func (l *Loop) watch(ctx context.Context, launched *target.Launched) <-chan struct{} {
	if launched != nil {
		return launched.Done()
	}
	switch l.Target.Scope {
	case target.Processes:
		return target.Watch(ctx, l.Target.PIDs)
	case target.Threads:
		return target.Watch(ctx, l.Target.TIDs)
	}
	return nil
}

// begin releases a launched command and enables the events, in this order only if
// ReleaseFirst is set or there is a delay. Otherwise the command's first instruction
// is sampled.
func (l *Loop) begin(ctx context.Context, m Measurement, launched *target.Launched, gone <-chan struct{}) error {
	release := func() error {
		if launched == nil {
			return nil
		}
		return launched.Release()
	}
	if l.Delay > 0 || l.ReleaseFirst {
		if err := release(); err != nil {
			return err
		}
	}
	if l.Delay > 0 {
		select {
		case <-time.After(l.Delay):
		case <-ctx.Done():
		case <-gone:
			l.Missed = true // nothing to measure
		}
	}
	l.Start = time.Now()
	if err := m.Enable(); err != nil {
		return err
	}
	return release()
}

// collect polls until the end of the duration, ctx or the target.
func (l *Loop) collect(ctx context.Context, m Measurement, garbage *collector, line *ProgressLine, gone <-chan struct{}) error {
	ready, err := epoll.New()
	if err != nil {
		return err
	}
	defer ready.Close()
	urgent, err := epoll.New()
	if err != nil {
		return err
	}
	defer urgent.Close()
	// Wake up at the end of the duration, not at the next poll.
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-ctx.Done():
		case <-gone:
		case <-over:
		}
		ready.Interrupt()
	}()

	polled, followed, busy, settled := time.Now(), time.Now(), false, false
	for l.Limit == 0 || time.Since(l.Start) < l.Limit {
		wait, rest := l.waits(busy)
		select {
		case <-ctx.Done():
			return nil
		case <-gone:
			if outlived, err := l.outlived(m); err != nil || !outlived {
				return err
			}
		default:
		}
		// It does not matter what ended the wait.
		if err := ready.Wait(append(m.PollFDs(), m.UrgentFDs()...), wait); err != nil {
			return err
		}
		if err := urgent.Wait(m.UrgentFDs(), rest-time.Since(polled)); err != nil {
			return err
		}
		time.Sleep(restUrgent - time.Since(polled))
		polled = time.Now()
		if busy, err = m.Poll(); err != nil {
			return err
		}
		if l.Enough != nil && l.Enough() {
			return nil
		}
		if !settled && time.Since(l.Start) >= settleAfter {
			settled = true
			l.settle()
		}
		if time.Since(followed) >= followEvery {
			followed = time.Now()
			garbage.adjust()
			online, err := perfevent.OnlineCPUs()
			if err != nil {
				return err
			}
			if err := m.FollowCPUs(online); err != nil {
				return err
			}
		}
		line.show(m)
	}
	return nil
}

// settle frees the memory that only the start needs.
func (l *Loop) settle() {
	if l.Settle != nil {
		l.Settle()
	}
	go debug.FreeOSMemory() // collects garbage first, and no poll should wait for that
}

// waits returns the longest time until the next poll, and the shortest one between polls.
func (l *Loop) waits(busy bool) (wait, rest time.Duration) {
	wait, rest = cmp.Or(l.Every, pollEvery), l.Rest
	if busy {
		wait = cmp.Or(l.EveryBusy, PollAtMost)
	}
	if time.Since(l.Start) < l.Alert {
		wait, rest = restUrgent, restUrgent
	}
	if l.Limit > 0 {
		wait = min(wait, l.Limit-time.Since(l.Start))
	}
	if l.Due != nil {
		wait = min(wait, time.Until(l.Due()))
	}
	return max(wait, 0), rest
}

// outlived reports whether children of the target are running after the given
// processes have ended.
func (l *Loop) outlived(m Measurement) (bool, error) {
	if t := l.Target; t.Scope != target.Processes || !t.Children {
		return false, nil
	}
	pids, err := m.Targets()
	return target.AnyAlive(pids), err
}

// EndCommand asks a command that is still running after the measurement to exit if
// ctx has ended. Otherwise the command runs on.
func EndCommand(ctx context.Context, launched *target.Launched) error {
	if launched == nil || ctx.Err() == nil {
		return nil
	}
	select {
	case <-launched.Done():
		return nil
	default:
		return launched.Terminate()
	}
}
