// Package loop is the course of a measurement: a command is let go, the kernel side
// is polled until the time is over, the target has ended or the user asks to end,
// and meanwhile a line on the terminal tells how far that is.
package loop

import (
	"context"
	"runtime/debug"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/epoll"
	"fulgur/internal/linux/perfevent"
)

// What [debug.SetGCPercent] is set to. Before and after sampling, most of what is
// allocated is garbage at once: collecting it 22 times at the start took a quarter of the
// start. What a run keeps while it samples, stacks and counts, grows slowly, so
// collecting early costs little then, and keeps memory low.
const (
	GCPercentAtStart = 200
	gcPercent        = 40
	gcPercentAtEnd   = 100
)

// PollAtMost is how long the kernel side is left alone at least, unless a
// measurement says otherwise. While processes come, go or map files it is also the
// rhythm of polls, so that a file is opened while it is there: each record on its own
// would cost those processes an interrupt.
const PollAtMost = 10 * time.Millisecond

// GraceForStacks is how much older than the last poll a sample may be that still
// comes, in ns: it takes microseconds from clock to ring, but a virtual CPU may be
// stopped in between.
const GraceForStacks = uint64(time.Second)

const (
	// pollEvery is how long the kernel side is left alone at most.
	pollEvery = 100 * time.Millisecond
	// restUrgent is how long the kernel side is left alone even if it asks for
	// something.
	restUrgent = time.Millisecond
	// followEvery is how often CPUs that came or went are looked for.
	followEvery = time.Second
)

// Measurement is what a loop runs.
type Measurement interface {
	// Enable starts sampling.
	Enable() error
	// Poll takes what the kernel side has, and reports whether processes
	// come, go or map files.
	Poll() (busy bool, err error)
	// PollFDs are the descriptors whose readiness is worth a poll.
	PollFDs() []int
	// UrgentFDs are others that are worth one at once.
	UrgentFDs() []int
	// Targets are the processes that are in the target set now.
	Targets() ([]int, error)
	// FollowCPUs goes along with CPUs that came online or went offline.
	FollowCPUs(online []int) error
	// Progress describes how far the measurement is, for a terminal.
	Progress() (string, error)
}

// Loop is the course of a measurement: it ends with its time, with its target
// or when it is told to.
type Loop struct {
	// Target is what is measured, for Limit, 0 if there is none, after a Delay.
	Target       target.Target
	Limit, Delay time.Duration
	// Rest is how long the kernel side is left alone at least.
	Rest time.Duration
	// ReleaseFirst lets a command go before sampling is enabled.
	ReleaseFirst bool
	// Enough, if not nil, ends the measurement when it reports true.
	Enough func() bool
	// Due, if not nil, returns when the next poll is wanted at the latest.
	Due func() time.Time
	// Alert is for how long after the start the kernel side is polled as often
	// as it may be.
	Alert time.Duration

	// Start is when sampling began, and Duration how long it went on.
	Start    time.Time
	Duration time.Duration
	// Missed says that the target ended before sampling began, Interrupted that
	// the context ended before sampling did.
	Missed, Interrupted bool
}

// Measure enables the events and collects until something ends it. What there is
// left to take is for the caller to poll.
func (l *Loop) Measure(ctx context.Context, m Measurement, line *ProgressLine, launched *target.Launched) error {
	debug.SetGCPercent(gcPercent)
	defer debug.SetGCPercent(gcPercentAtEnd)
	// Watching ends with sampling, not with ctx alone.
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	gone := l.watch(watch, launched)
	defer line.clear()

	if err := l.begin(ctx, m, launched, gone); err != nil {
		return err
	}
	err := l.collect(ctx, m, line, gone)
	l.Duration, l.Interrupted = time.Since(l.Start), ctx.Err() != nil
	return err
}

// watch returns a channel that is closed when the target is gone, nil for
// targets that never are.
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

// begin lets a launched command run and enables the events: in this order
// only if it has to be or there is a delay, so that otherwise the command's
// first instruction is sampled.
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
			l.Missed = true // there will be nothing to see
		}
	}
	l.Start = time.Now()
	if err := m.Enable(); err != nil {
		return err
	}
	return release()
}

// collect polls until the duration, ctx or the target ends.
func (l *Loop) collect(ctx context.Context, m Measurement, line *ProgressLine, gone <-chan struct{}) error {
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
	// The end of all is not waited for until the next poll.
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

	polled, followed, busy := time.Now(), time.Now(), false
	for {
		wait, rest := pollEvery, l.Rest
		if busy {
			wait = PollAtMost
		}
		if time.Since(l.Start) < l.Alert {
			wait, rest = restUrgent, restUrgent
		}
		if d := l.Limit; d > 0 {
			wait = min(wait, d-time.Since(l.Start))
			if wait <= 0 {
				return nil
			}
		}
		if l.Due != nil {
			wait = min(wait, max(time.Until(l.Due()), 0))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-gone:
			if outlived, err := l.outlived(m); err != nil || !outlived {
				return err
			}
		default:
		}
		// What ended the waits does not matter.
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
		if time.Since(followed) >= followEvery {
			followed = time.Now()
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
}

// outlived reports whether children of the target run on after the processes
// that were named.
func (l *Loop) outlived(m Measurement) (bool, error) {
	if t := l.Target; t.Scope != target.Processes || !t.Children {
		return false, nil
	}
	pids, err := m.Targets()
	return target.AnyAlive(pids), err
}

// EndCommand asks a command that outlives the sampling to end if we were told
// to end ourselves; otherwise it runs on.
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
