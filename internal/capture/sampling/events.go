// Package sampling contains the common parts of sources that sample perf events: the
// events of every CPU, and the kernel side's set of targets.
package sampling

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
)

// throttlePages is the size of the ring that shows when the kernel pauses sampling.
// It contains only THROTTLE records, because samples end in the BPF program.
const throttlePages = 1

// Rate is the sampling rate: a frequency in Hz per CPU, or a period in events. One
// of them is 0.
type Rate struct{ Frequency, Period uint64 }

// String describes the rate, such as "99 Hz on each CPU" or "every 1000 events".
func (r Rate) String() string {
	if r.Frequency > 0 {
		return fmt.Sprintf("%d Hz on each CPU", r.Frequency)
	}
	return fmt.Sprintf("every %d events", r.Period)
}

// Reduced returns a rate that is lower by a factor. Frequencies become odd, like the default, to avoid
// lockstep with timers of round rates.
func (r Rate) Reduced(by uint64) Rate {
	switch {
	case by <= 1:
		return r
	case r.Period > 0:
		return Rate{Period: r.Period * by}
	}
	return Rate{Frequency: min(r.Frequency/by|1, r.Frequency)}
}

// Config selects the events to open.
type Config struct {
	// Specs are the events to sample. A hybrid machine has several, one per kind
	// of core.
	Specs []perfevent.Spec
	Rate  Rate
	// CPUs are the CPUs to sample; empty means all online CPUs.
	CPUs []int
	// BranchSampleType requests branch records; see [perfevent.Attr].
	BranchSampleType uint64
	// Program is the descriptor of the BPF program that receives the samples.
	Program int
}

// Events are the open perf events of a source. They are not safe for
// concurrent use.
type Events struct {
	config  Config
	perCPU  map[int]*cpuEvents
	enabled bool
	stalls  perfevent.Stalls

	throttled uint64
	closed    map[int]closedEvents // by CPU

	idleBefore map[int]uint64 // idle times when the events were enabled, or their rate last changed
	// before holds the arguments and the result of Skipped, and the counts of the events, at the last
	// change of the rate.
	before counters
}

// cpuEvents are a CPU's events and the rings that show their throttling.
type cpuEvents struct {
	open  []*perfevent.Event
	rings []*perfevent.Ring
}

// counters are the counters of events and of their program, by CPU.
type counters struct {
	skipped                    uint64
	runs, periods, idlePeriods []uint64
	counted, closed            map[int]uint64 // counts, and the number of closed events
}

// closedEvents are a CPU's events that were closed, and the sum of their counts.
type closedEvents struct{ events, count uint64 }

// Open opens disabled events on the CPUs and attaches the program.
//
// Events are bound to CPUs even for a single process, and the kernel side selects
// its samples. Events that follow a task restart with each thread and child, so
// tasks that live for less than a period would never be sampled.
func Open(c Config) (*Events, error) {
	e := &Events{config: c, perCPU: map[int]*cpuEvents{}, closed: map[int]closedEvents{}}
	online, err := perfevent.OnlineCPUs()
	if err == nil {
		err = e.Follow(online)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Events) attr(spec perfevent.Spec) perfevent.Attr {
	attr := spec.Attr()
	attr.Frequency, attr.Period = e.config.Rate.Frequency, e.config.Rate.Period
	attr.BranchSampleType = e.config.BranchSampleType
	attr.Disabled = true
	return attr
}

// Follow opens events on CPUs that have none, closes the events of CPUs that went
// offline, and replaces events that stopped because their CPU was offline for a
// moment. With many CPUs, a call looks for the latter on some of them only. The events must be enabled or new.
func (e *Events) Follow(online []int) error {
	for cpu := range e.perCPU {
		if !slices.Contains(online, cpu) {
			e.drop(cpu)
		}
	}
	for _, cpu := range e.stalls.Find(slices.Sorted(maps.Keys(e.perCPU)), e.stalled) {
		e.drop(cpu)
	}
	for _, cpu := range online {
		if _, open := e.perCPU[cpu]; open || len(e.config.CPUs) > 0 && !slices.Contains(e.config.CPUs, cpu) {
			continue
		}
		on, err := e.openCPU(cpu)
		if len(on.open) > 0 {
			e.perCPU[cpu] = on
		}
		if err == nil && e.enabled {
			err = on.enable()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stalled reports whether the kernel has stopped the events of cpu, because it went offline. All
// of them stop then, so it looks at one.
func (e *Events) stalled(cpu int) bool {
	on := e.perCPU[cpu]
	return len(on.open) > 0 && on.open[0].Stalled()
}

// SetRate replaces the open events by events with another rate. No time is sampled twice; the
// period that an event has begun ends without a sample.
//
// PERF_EVENT_IOC_PERIOD would change the rate of an open event. But the samples of a clock would
// keep the period with which it was opened: perf_swevent_hrtimer in the kernel's
// kernel/events/core.c reports last_period, which only perf_swevent_init_hrtimer sets.
func (e *Events) SetRate(r Rate) error {
	if r == e.config.Rate {
		return nil
	}
	if err := e.CheckThrottling(); err != nil {
		return err
	}
	e.config.Rate = r
	for cpu := range e.perCPU {
		on, err := e.openCPU(cpu)
		if err != nil {
			return errors.Join(err, on.close())
		}
		if len(on.open) == 0 {
			continue // the CPU went offline, which Follow will notice
		}
		if err := e.perCPU[cpu].disable(); err != nil {
			return errors.Join(err, on.close())
		}
		e.drop(cpu)
		e.perCPU[cpu] = on
		if e.enabled {
			if err := on.enable(); err != nil {
				return err
			}
		}
	}
	return nil
}

// openCPU opens cpu's events, disabled. There are none if the CPU just went offline.
func (e *Events) openCPU(cpu int) (*cpuEvents, error) {
	on := &cpuEvents{}
	for _, spec := range e.config.Specs {
		if !spec.HasCPU(cpu) {
			continue
		}
		event, err := perfevent.Open(e.attr(spec), -1, cpu)
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return on, err
		}
		on.open = append(on.open, event)
		if err := event.AttachBPF(e.config.Program); err != nil {
			return on, err
		}
		if ring, err := event.Map(throttlePages); err == nil {
			on.rings = append(on.rings, ring) // without a ring, only throttling goes unnoticed
		}
	}
	return on, nil
}

// drop closes cpu's events and keeps their counts.
func (e *Events) drop(cpu int) {
	on, all := e.perCPU[cpu], e.closed[cpu]
	if count, err := on.count(); err == nil {
		e.closed[cpu] = closedEvents{all.events + uint64(len(on.open)), all.count + count}
	}
	_ = on.close() // they are not needed any more, so errors do not matter
	delete(e.perCPU, cpu)
}

func (on *cpuEvents) enable() error {
	for _, event := range on.open {
		if err := event.Enable(); err != nil {
			return err
		}
	}
	return nil
}

func (on *cpuEvents) disable() error {
	var errs []error
	for _, event := range on.open {
		errs = append(errs, event.Disable())
	}
	return errors.Join(errs...)
}

// count returns the sum of the CPU's counts.
func (on *cpuEvents) count() (sum uint64, err error) {
	for _, event := range on.open {
		r, err := event.Read()
		if err != nil {
			return sum, err
		}
		sum += r.Count
	}
	return sum, nil
}

func (on *cpuEvents) close() error {
	var errs []error
	for _, event := range on.open {
		errs = append(errs, event.Close())
	}
	return errors.Join(errs...)
}

// countedByCPU returns the number of events on each CPU, in ns for clocks.
func (e *Events) countedByCPU() (map[int]uint64, error) {
	counted := map[int]uint64{}
	for cpu, closed := range e.closed {
		counted[cpu] = closed.count
	}
	for cpu, on := range e.perCPU {
		count, err := on.count()
		if err != nil {
			return nil, fmt.Errorf("on CPU %d: %w", cpu, err)
		}
		counted[cpu] += count
	}
	return counted, nil
}

// CPUs returns the number of CPUs with open events.
func (e *Events) CPUs() int { return len(e.perCPU) }

// Enable starts sampling.
func (e *Events) Enable() error {
	e.enabled = true
	e.idleBefore, _ = procfs.IdleTimes() // on error, no CPU counts as idle
	for _, on := range e.perCPU {
		if err := on.enable(); err != nil {
			return err
		}
	}
	return nil
}

// Disable stops sampling. When it returns, no program runs any more.
func (e *Events) Disable() error {
	e.enabled = false
	var errs []error
	for _, on := range e.perCPU {
		errs = append(errs, on.disable())
	}
	return errors.Join(errs...)
}

// CheckThrottling counts how often the kernel has paused sampling since the last
// call.
func (e *Events) CheckThrottling() error {
	var errs []error
	for _, on := range e.perCPU {
		for _, ring := range on.rings {
			_, err := ring.Read(func(r perfevent.Record) {
				if _, ok := r.(perfevent.Throttle); ok {
					e.throttled++
				}
			})
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Throttled returns how often the kernel is known to have paused sampling.
func (e *Events) Throttled() uint64 { return e.throttled }

// Skipped returns the number of samples that the kernel did not take: the difference
// between what it counted and what it passed to the program. The kernel skips
// samples while another BPF program or a map operation runs on the CPU, and when its
// timer is late. runs and periods are, by CPU, the runs of the program and the sum
// of their periods.
//
// On an idle CPU of a virtual machine, timers may always be late. If idle samples
// are not wanted and the events are clocks, idlePeriods is the idle task's part of
// periods, and the rest of the idle time does not count as skipped; otherwise
// idlePeriods is nil.
func (e *Events) Skipped(runs, periods, idlePeriods []uint64) (uint64, error) {
	counted, err := e.countedByCPU()
	if err != nil {
		return 0, err
	}
	var idle map[int]uint64
	if idlePeriods != nil {
		idle, _ = procfs.IdleTimes()
	}
	skipped := e.before.skipped
	for cpu, count := range counted {
		if cpu >= len(runs) || runs[cpu] == at(e.before.runs, cpu) {
			continue
		}
		all := periods[cpu] - at(e.before.periods, cpu)
		mean := all / (runs[cpu] - at(e.before.runs, cpu))
		// The last period of a closed event had not ended.
		known := all + mean*(e.closed[cpu].events-e.before.closed[cpu])
		if now, before := idle[cpu], e.idleBefore[cpu]; now > before {
			known += unseen(now-before, idlePeriods[cpu]-at(e.before.idlePeriods, cpu))
		}
		skipped += missing(count-e.before.counted[cpu], known, mean)
	}
	return skipped, nil
}

// Mark is called after the rate has changed, with the arguments of [Events.Skipped]. The length of
// skipped periods is estimated by their mean, so samples of different rates must not be mixed.
func (e *Events) Mark(runs, periods, idlePeriods []uint64) error {
	skipped, err := e.Skipped(runs, periods, idlePeriods)
	if err != nil {
		return err
	}
	counted, err := e.countedByCPU()
	if err != nil {
		return err
	}
	closed := map[int]uint64{}
	for cpu, events := range e.closed {
		closed[cpu] = events.events
	}
	e.before = counters{skipped, runs, periods, idlePeriods, counted, closed}
	if idlePeriods != nil {
		e.idleBefore, _ = procfs.IdleTimes()
	}
	return nil
}

// at returns element i of values, 0 if there is none.
func at(values []uint64, i int) uint64 {
	if i < len(values) {
		return values[i]
	}
	return 0
}

// unseen returns the idle time of a CPU that has no samples of the idle task, in ns.
func unseen(idle, sampled uint64) uint64 { return idle - min(idle, sampled) }

// missing returns the number of missing samples with the given mean period, if count
// events occurred and known of them are accounted for. The last period has not
// ended, so one sample is never missing.
func missing(count, known, mean uint64) uint64 {
	if mean == 0 || count <= known+mean {
		return 0
	}
	return (count - known) / mean
}

// Close closes the events. e may be nil.
func (e *Events) Close() error {
	if e == nil {
		return nil
	}
	var errs []error
	for _, on := range e.perCPU {
		errs = append(errs, on.close())
	}
	return errors.Join(errs...)
}
