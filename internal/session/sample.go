package session

import (
	"context"
	"errors"
	"fmt"

	"fulgur/bpf"
	"fulgur/internal/stacks"
	"fulgur/internal/target"
)

// sample collects until something ends it, stops sampling and takes all that
// is left.
func (r *run) sample(ctx context.Context, launched *target.Launched) error {
	if launched != nil && r.unwinder.loader != nil {
		r.alert = alertAtLaunch
	}
	line := &progressLine{wanted: r.options.Progress, out: r.options.Stderr}
	err := errors.Join(r.measure(ctx, r, line, launched), r.source.Disable())
	_, pollErr := r.poll()
	return errors.Join(err, pollErr, r.source.Counts().Finish(), endCommand(ctx, launched))
}

func (r *run) enable() error           { return r.source.Enable() }
func (r *run) targets() ([]int, error) { return r.source.Targets() }
func (r *run) pollFDs() []int          { return append(r.sideband.FDs(), r.source.Ring().FD()) }
func (r *run) urgentFDs() []int        { return r.unwinder.fds() }

func (r *run) followCPUs(online []int) error {
	return errors.Join(r.sideband.FollowCPUs(online), r.source.FollowCPUs(online))
}

// poll takes what the kernel side has for us. Stacks and sideband records come
// through channels without a common order: the ring's position is noted, then
// the sideband is drained, so that every stack before that position meets the
// mappings of its time.
func (r *run) poll() (busy bool, err error) {
	now, position := monotonic(), r.source.Ring().Position()
	requests := r.unwinder.position()
	r.busy = false
	r.drain()
	if err := r.unwinder.update(r.processes, requests, now); err != nil {
		return r.busy, err
	}
	r.processes.FollowPerfMaps()
	for pid := range r.remapped {
		if err := r.source.Remap(pid); err != nil {
			return r.busy, err
		}
	}
	clear(r.remapped)
	if err := r.source.Ring().ReadTo(position, r.record); err != nil {
		return r.busy, err
	}
	r.processes.Forget(now - graceForStacks)
	full, err := r.source.Counts().NearlyFull()
	if err != nil {
		return r.busy, err
	}
	if full {
		r.store.Count(r.source.Counts().Total()) // what was drained last time
		if err := r.source.Counts().Flip(); err != nil {
			return r.busy, err
		}
	}
	return r.busy, errors.Join(r.source.CheckThrottling(), r.sidebandErr)
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
