package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/loop"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/unwinding"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/ringbuf"
)

// sample measures until the end, stops sampling and reads the remaining data.
func (r *run) sample(ctx context.Context, launched *target.Launched) error {
	if launched != nil && r.unwinder.HasTables() {
		r.loop.Alert = unwinding.AlertAtLaunch
	}
	line := &loop.ProgressLine{Wanted: r.options.Progress, Out: r.options.Stderr}
	err := r.loop.Measure(ctx, r, line, launched)
	ended, stopErr := source.Stop(r.gate, r.sources...)
	r.ended, err = ended, errors.Join(err, stopErr)
	slog.Debug("sampling ended", "lasted", r.loop.Duration, "interrupted", r.loop.Interrupted, "error", err)
	_, readErr := r.read()
	// The stacks of snapshots reach the rings when they are walked, which read may have done last.
	readErr = errors.Join(readErr, r.snapshots.Finish(), r.handleRecords())
	return errors.Join(err, readErr, source.Each(r.sources, func(s source.Source) error { return s.Counts().Finish() }), loop.EndCommand(ctx, launched))
}

// Enable implements [loop.Measurement]. It starts all sources. Some list all existing threads with
// sleepable programs.
func (r *run) Enable() error {
	if r.pipeline != nil {
		if err := r.pipeline.begin(); err != nil {
			return err
		}
	}
	if r.recorder != nil {
		if err := r.recorder.begin(monotonic.Now()); err != nil {
			return err
		}
	}
	return r.unwinder.WithFrozenTables(func() error { return source.Start(r.gate, r.sources...) })
}

// Targets implements [loop.Measurement]. It returns the target's processes, which are the same for all sources.
func (r *run) Targets() ([]int, error) { return r.sources[0].Targets() }

// PollFDs implements [loop.Measurement].
func (r *run) PollFDs() []int {
	fds := r.tracker.Sideband.FDs()
	for _, s := range r.sources {
		if fd := s.Ring().FD(); fd >= 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// UrgentFDs implements [loop.Measurement].
func (r *run) UrgentFDs() []int { return r.unwinder.FDs() }

// FollowCPUs implements [loop.Measurement].
func (r *run) FollowCPUs(online []int) error {
	return errors.Join(r.tracker.Sideband.FollowCPUs(online), source.Each(r.sources, func(s source.Source) error { return s.FollowCPUs(online) }))
}

// tidyEvery is the interval of work that no sample waits for: releasing processes that
// ended, and following perf maps.
const tidyEvery = 100 * time.Millisecond

// forgetEvery is the interval at which processes that have ended are forgotten, which looks
// at every process.
const forgetEvery = time.Second

// Poll implements [loop.Measurement]. It reads the kernel side's data, which the pipeline passes on.
func (r *run) Poll() (busy bool, err error) {
	if busy, err = r.read(); err != nil || r.pipeline == nil {
		return busy, err
	}
	if err := r.queue.failed(); err != nil {
		return busy, err
	}
	return busy, r.pipeline.polled(time.Now())
}

// read reads the kernel side's data. Stacks and sideband records come through rings without a
// common order. So read notes the positions in the rings of stacks first, and then drains the
// sideband: every stack before its ring's position finds the mappings of its time.
func (r *run) read() (busy bool, err error) {
	now, positions := monotonic.Now(), make([]uint64, len(r.sources))
	requests := r.unwinder.Position()
	for i, s := range r.sources {
		positions[i] = s.Ring().Position()
	}
	r.tracker.Busy = false
	r.tracker.Drain()
	if err := r.unwinder.Update(r.tracker.Processes, requests, now); err != nil {
		return r.tracker.Busy, err
	}
	tidy := now >= r.tidied+uint64(tidyEvery)
	if tidy {
		r.tidied = now
		r.unwinder.Tidy(now)
		r.tracker.Processes.FollowJIT()
		r.store.FinishLabels()
	}
	for pid := range r.remapped {
		if err := source.Each(r.sources, func(s source.Source) error { return s.Remap(pid) }); err != nil {
			return r.tracker.Busy, err
		}
		slog.Debug("code replaced", "pid", pid)
	}
	clear(r.remapped)
	if err := r.passMappedFiles(); err != nil {
		return r.tracker.Busy, err
	}
	for i, position := range positions {
		if err := r.readTo(i, position); err != nil {
			return r.tracker.Busy, err
		}
	}
	r.judge.Poll()
	if err := r.snapshots.Rewalk(now); err != nil {
		return r.tracker.Busy, err
	}
	needed := min(now-loop.GraceForStacks, r.snapshots.Needed())
	_ = source.Each(r.sources, func(s source.Delayed) error {
		needed = min(needed, s.Needed())
		return nil
	})
	if now >= r.forgot+uint64(forgetEvery) {
		r.forgot = now
		r.tracker.Processes.Forget(needed)
	}
	if r.recorder != nil {
		if err := r.recorder.poll(now, needed); err != nil {
			return r.tracker.Busy, err
		}
	}
	// Snapshots wait for the next poll after their tables are ready.
	busy = r.tracker.Busy || r.snapshots.Waiting()
	return busy, errors.Join(source.Each(r.sources, r.drainFull), source.Each(r.sources, source.Source.Check), r.tracker.DrainErr)
}

// drainFull drains a count map that is nearly full.
func (r *run) drainFull(s source.Source) error {
	full, err := s.Counts().NearlyFull()
	if err != nil || !full {
		return err
	}
	r.store.Count(s.Counts().Total()) // drained last time
	return s.Counts().Flip()
}

// readTo handles the records of a source's ring up to a position.
func (r *run) readTo(i int, position uint64) error {
	return r.sources[i].Ring().ReadTo(position, func(record []byte) error { return r.record(i, record) })
}

// handleRecords handles all records in the rings.
func (r *run) handleRecords() error {
	var errs []error
	for i, s := range r.sources {
		errs = append(errs, r.readTo(i, s.Ring().Position()))
	}
	return errors.Join(errs...)
}

// record handles one record of a source's ring.
func (r *run) record(i int, record []byte) error {
	s := r.sources[i]
	kind, err := stacks.RecordType(record)
	if err != nil {
		return err
	}
	switch kind {
	case bpf.RecordStack:
		return r.addStack(s.Counts(), record)
	case bpf.RecordEvent:
		return s.Counts().AddRecord(record)
	case bpf.RecordFile:
		return r.store.AddFile(record)
	case bpf.RecordCode:
		return r.store.AddCode(record)
	case bpf.RecordLabels:
		return r.store.AddLabels(record)
	case bpf.RecordSnapshot:
		if again, ok := s.(source.Rewalker); ok {
			return r.snapshots.Add(again, record, r.tracker.Processes)
		}
	case bpf.RecordTimeline:
		return r.event(i, record)
	}
	return fmt.Errorf("%w: type %d", ringbuf.ErrRecord, kind)
}

// addStack adds the trace of a stack record, and the sample that the record counts. While a
// window is closing, records of the next window may arrive, too.
func (r *run) addStack(counts *stacks.Counts, record []byte) error {
	if err := r.store.Add(record); err != nil {
		return err
	}
	key, value, ok := counts.First(record)
	switch {
	case !ok:
	case r.closing != 0 && stacks.TimeOf(record) > r.closing:
		counts.AddNext(key, value)
	case !r.store.CountFinal(key, value):
		counts.Add(key, value)
	}
	return nil
}

// Progress implements [loop.Measurement]. It describes the samples so far.
func (r *run) Progress() (string, error) {
	stats, err := r.stats()
	if err != nil {
		return "", err
	}
	counts := fmt.Sprintf("%s, %d stacks", r.noun().Count(stats.Samples), len(r.store.Traces))
	if lost := stats.Losses.Uncounted() + r.tracker.Lost; lost > 0 {
		counts += fmt.Sprintf(", %d lost", lost)
	}
	return r.loop.Describe(counts), nil
}
