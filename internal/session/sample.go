package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/bpf"
	"fulgur/internal/perfevent"
	"fulgur/internal/stacks"
	"fulgur/internal/target"
)

const (
	// sidebandPages is the size of each CPU's sideband ring: room for half a
	// second of a busy build's forks and mappings, and for some rounds of
	// pollAtMost of a program that does nothing but make memory executable.
	sidebandPages = 128
	// pollEvery is how long the kernel side is left alone at most, pollAtMost
	// how long at least. While processes come, go or map files it is also the
	// rhythm, so that a file is opened while it is there: each record on its
	// own would cost those processes an interrupt.
	pollEvery  = 100 * time.Millisecond
	pollAtMost = 10 * time.Millisecond
	// graceForStacks is how much older than the last poll a stack may be that
	// still comes, in ns: a sample takes microseconds from clock to ring, but
	// a virtual CPU may be stopped in between.
	graceForStacks = uint64(time.Second)
	// followEvery is how often CPUs that came or went are looked for.
	followEvery = time.Second
)

// sample enables the events and collects until something ends it.
func (r *run) sample(ctx context.Context, launched *target.Launched) error {
	// Watching ends with sampling, not with ctx alone.
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	gone := r.watch(watch, launched)
	progress := newProgress(r)
	defer progress.clear()

	if err := r.begin(ctx, launched, gone); err != nil {
		return err
	}
	err := r.collect(ctx, gone, progress)
	r.duration = time.Since(r.start)
	return errors.Join(err, r.finish(ctx, launched))
}

// watch returns a channel that is closed when the target is gone, nil for
// targets that never are.
func (r *run) watch(ctx context.Context, launched *target.Launched) <-chan struct{} {
	if launched != nil {
		return launched.Done()
	}
	switch r.options.Target.Scope {
	case target.Processes:
		return target.Watch(ctx, r.options.Target.PIDs)
	case target.Threads:
		return target.Watch(ctx, r.options.Target.TIDs)
	}
	return nil
}

// begin lets a launched command run and enables the events: in this order
// only if there is a delay, so that otherwise the command's first instruction
// is sampled.
func (r *run) begin(ctx context.Context, launched *target.Launched, gone <-chan struct{}) error {
	release := func() error {
		if launched == nil {
			return nil
		}
		return launched.Release()
	}
	if r.options.Delay > 0 {
		if err := release(); err != nil {
			return err
		}
		select {
		case <-time.After(r.options.Delay):
		case <-ctx.Done():
		case <-gone:
			r.missed = true // the profile will be empty
		}
	}
	r.start = time.Now()
	if err := r.source.Enable(); err != nil {
		return err
	}
	return release()
}

// collect polls until the duration, ctx or the target ends.
func (r *run) collect(ctx context.Context, gone <-chan struct{}, progress *progress) error {
	polled, followed := time.Now(), time.Now()
	for {
		wait := pollEvery
		if r.busy {
			wait = pollAtMost
		}
		if d := r.options.Duration; d > 0 {
			wait = min(wait, d-time.Since(r.start))
			if wait <= 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-gone:
			if outlived, err := r.outlived(); err != nil || !outlived {
				return err
			}
		default:
		}
		// Whether it was readiness or time that ended the wait does not matter.
		if _, err := unix.Ppoll(r.pollFDs(), timespec(wait), nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for stacks: %w", err)
		}
		time.Sleep(pollAtMost - time.Since(polled))
		polled = time.Now()
		if err := r.poll(); err != nil {
			return err
		}
		if time.Since(followed) >= followEvery {
			followed = time.Now()
			if err := r.followCPUs(); err != nil {
				return err
			}
		}
		progress.show()
	}
}

// outlived reports whether children of the target run on after the processes
// that were named.
func (r *run) outlived() (bool, error) {
	if t := r.options.Target; t.Scope != target.Processes || !t.Children {
		return false, nil
	}
	pids, err := r.source.Targets()
	return target.AnyAlive(pids), err
}

// pollFDs are the channels whose readiness is worth a poll.
func (r *run) pollFDs() []unix.PollFd {
	fds := []unix.PollFd{{Fd: int32(r.source.Ring().FD()), Events: unix.POLLIN}}
	for _, fd := range r.sideband.FDs() {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return fds
}

func timespec(d time.Duration) *unix.Timespec {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	return &ts
}

// poll takes what the kernel side has for us. Stacks and sideband records come
// through channels without a common order: the ring's position is noted, then
// the sideband is drained, so that every stack before that position meets the
// mappings of its time.
func (r *run) poll() error {
	now, position := monotonic(), r.source.Ring().Position()
	r.busy = false
	r.drainSideband()
	r.processes.FollowPerfMaps()
	for pid := range r.remapped {
		if err := r.source.Remap(pid); err != nil {
			return err
		}
	}
	clear(r.remapped)
	if err := r.source.Ring().ReadTo(position, r.record); err != nil {
		return err
	}
	r.processes.Forget(now - graceForStacks)
	full, err := r.source.Counts().NearlyFull()
	if err != nil {
		return err
	}
	if full {
		r.store.Count(r.source.Counts().Total()) // what was drained last time
		if err := r.source.Counts().Flip(); err != nil {
			return err
		}
	}
	return errors.Join(r.source.CheckThrottling(), r.sidebandErr)
}

// drainSideband brings the processes up to date. The table calls it too, after
// it read /proc, so its error waits for the next poll.
func (r *run) drainSideband() {
	lost, err := r.sideband.Drain(func(record perfevent.Record) {
		r.busy = true
		r.processes.Apply(record)
	})
	if err != nil {
		r.sidebandErr = err
	}
	r.lost += lost // the table knows from the records among them
}

// monotonic returns the time of the clock that stacks carry, in ns.
func monotonic() uint64 {
	var ts unix.Timespec
	// The clock exists on every kernel.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}

// record takes one record of the ring.
func (r *run) record(record []byte) error {
	kind, err := stacks.RecordType(record)
	if err != nil {
		return err
	}
	switch kind {
	case bpf.OnCPURecordTypeRECORD_STACK:
		return r.store.Add(record)
	case bpf.OnCPURecordTypeRECORD_EVENT:
		key, weight, err := stacks.ParseEvent(record)
		if err != nil {
			return err
		}
		r.source.Counts().Add(key, weight)
		return nil
	}
	return fmt.Errorf("%w: type %d", stacks.ErrRecord, kind)
}

// followCPUs goes along with CPUs that came online or went offline.
func (r *run) followCPUs() error {
	online, err := perfevent.OnlineCPUs()
	if err != nil {
		return err
	}
	return errors.Join(r.sideband.FollowCPUs(online), r.source.FollowCPUs(online))
}

// finish stops sampling and takes all that is left. A command that outlives
// the sampling runs on, unless we were told to end.
func (r *run) finish(ctx context.Context, launched *target.Launched) error {
	err := errors.Join(r.source.Disable(), r.poll(), r.source.Counts().Finish())
	if launched != nil && ctx.Err() != nil {
		select {
		case <-launched.Done():
		default:
			err = errors.Join(err, launched.Terminate())
		}
	}
	return err
}
