package session

import (
	"context"
	"time"

	"fulgur/internal/perfevent"
	"fulgur/internal/readiness"
	"fulgur/internal/target"
)

const (
	// pollEvery is how long the kernel side is left alone at most, pollAtMost
	// how long at least, unless a measurement says otherwise. While processes
	// come, go or map files pollAtMost is also the rhythm, so that a file is
	// opened while it is there: each record on its own would cost those
	// processes an interrupt.
	pollEvery  = 100 * time.Millisecond
	pollAtMost = 10 * time.Millisecond
	// restUrgent is how long the kernel side is left alone even if it asks for
	// something.
	restUrgent = time.Millisecond
	// graceForStacks is how much older than the last poll a sample may be that
	// still comes, in ns: it takes microseconds from clock to ring, but a
	// virtual CPU may be stopped in between.
	graceForStacks = uint64(time.Second)
	// followEvery is how often CPUs that came or went are looked for.
	followEvery = time.Second
)

// measurement is what a loop runs.
type measurement interface {
	// enable starts sampling.
	enable() error
	// poll takes what the kernel side has, and reports whether processes
	// come, go or map files.
	poll() (busy bool, err error)
	// pollFDs are the descriptors whose readiness is worth a poll.
	pollFDs() []int
	// urgentFDs are others that are worth one at once.
	urgentFDs() []int
	// targets are the processes that are in the target set now.
	targets() ([]int, error)
	// followCPUs goes along with CPUs that came online or went offline.
	followCPUs(online []int) error
	// progress describes how far the measurement is, for a terminal.
	progress() (string, error)
}

// loop is the course of a measurement: it ends with its time, with its target
// or when it is told to.
type loop struct {
	target       target.Target
	limit, delay time.Duration // limit is 0 if there is none
	rest         time.Duration // how long the kernel side is left alone at least
	// releaseFirst lets a command go before sampling is enabled.
	releaseFirst bool
	// enough, if not nil, ends the measurement when it reports true.
	enough func() bool
	// due, if not nil, returns when the next poll is wanted at the latest.
	due func() time.Time
	// alert is for how long after the start the kernel side is polled as often
	// as it may be.
	alert time.Duration

	start    time.Time
	duration time.Duration
	missed   bool // the target ended before sampling began
	// interrupted: the context ended before sampling did.
	interrupted bool
}

// measure enables the events and collects until something ends it. What there is
// left to take is for the caller to poll.
func (l *loop) measure(ctx context.Context, m measurement, line *progressLine, launched *target.Launched) error {
	// Watching ends with sampling, not with ctx alone.
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	gone := l.watch(watch, launched)
	defer line.clear()

	if err := l.begin(ctx, m, launched, gone); err != nil {
		return err
	}
	err := l.collect(ctx, m, line, gone)
	l.duration, l.interrupted = time.Since(l.start), ctx.Err() != nil
	return err
}

// watch returns a channel that is closed when the target is gone, nil for
// targets that never are.
func (l *loop) watch(ctx context.Context, launched *target.Launched) <-chan struct{} {
	if launched != nil {
		return launched.Done()
	}
	switch l.target.Scope {
	case target.Processes:
		return target.Watch(ctx, l.target.PIDs)
	case target.Threads:
		return target.Watch(ctx, l.target.TIDs)
	}
	return nil
}

// begin lets a launched command run and enables the events: in this order
// only if it has to be or there is a delay, so that otherwise the command's
// first instruction is sampled.
func (l *loop) begin(ctx context.Context, m measurement, launched *target.Launched, gone <-chan struct{}) error {
	release := func() error {
		if launched == nil {
			return nil
		}
		return launched.Release()
	}
	if l.delay > 0 || l.releaseFirst {
		if err := release(); err != nil {
			return err
		}
	}
	if l.delay > 0 {
		select {
		case <-time.After(l.delay):
		case <-ctx.Done():
		case <-gone:
			l.missed = true // there will be nothing to see
		}
	}
	l.start = time.Now()
	if err := m.enable(); err != nil {
		return err
	}
	return release()
}

// collect polls until the duration, ctx or the target ends.
func (l *loop) collect(ctx context.Context, m measurement, line *progressLine, gone <-chan struct{}) error {
	ready, err := readiness.New()
	if err != nil {
		return err
	}
	defer ready.Close()
	urgent, err := readiness.New()
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
		wait, rest := pollEvery, l.rest
		if busy {
			wait = pollAtMost
		}
		if time.Since(l.start) < l.alert {
			wait, rest = restUrgent, restUrgent
		}
		if d := l.limit; d > 0 {
			wait = min(wait, d-time.Since(l.start))
			if wait <= 0 {
				return nil
			}
		}
		if l.due != nil {
			wait = min(wait, max(time.Until(l.due()), 0))
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
		if err := ready.Wait(append(m.pollFDs(), m.urgentFDs()...), wait); err != nil {
			return err
		}
		if err := urgent.Wait(m.urgentFDs(), rest-time.Since(polled)); err != nil {
			return err
		}
		time.Sleep(restUrgent - time.Since(polled))
		polled = time.Now()
		if busy, err = m.poll(); err != nil {
			return err
		}
		if l.enough != nil && l.enough() {
			return nil
		}
		if time.Since(followed) >= followEvery {
			followed = time.Now()
			online, err := perfevent.OnlineCPUs()
			if err != nil {
				return err
			}
			if err := m.followCPUs(online); err != nil {
				return err
			}
		}
		line.show(m)
	}
}

// outlived reports whether children of the target run on after the processes
// that were named.
func (l *loop) outlived(m measurement) (bool, error) {
	if t := l.target; t.Scope != target.Processes || !t.Children {
		return false, nil
	}
	pids, err := m.targets()
	return target.AnyAlive(pids), err
}

// endCommand asks a command that outlives the sampling to end if we were told
// to end ourselves; otherwise it runs on.
func endCommand(ctx context.Context, launched *target.Launched) error {
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
