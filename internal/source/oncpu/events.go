package oncpu

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/perfevent"
	"fulgur/internal/target"
)

// throttlePages is the size of the ring that shows when the kernel pauses
// sampling: it holds nothing but THROTTLE records, because samples end in the
// BPF program.
const throttlePages = 1

// events are the open perf events of a source.
type events struct {
	specs   []perfevent.Spec
	rate    Rate
	program int // descriptor of the BPF program
	perCPU  map[int]*cpuEvents
	cpus    []int // asked for; empty means all that are online
	enabled bool

	throttled uint64
	counted   map[int]uint64 // by CPU, of events that are closed again
}

// cpuEvents are a CPU's events and the rings that show their throttling.
type cpuEvents struct {
	open  []*perfevent.Event
	rings []*perfevent.Ring
}

// Rate is how often to sample: a frequency in Hz for each CPU, or a period in
// events. One of them is 0.
type Rate struct{ Frequency, Period uint64 }

// Attach opens disabled events on the target's CPUs and attaches the program.
// specs are the events to sample, several where a hybrid machine has a PMU for
// each kind of core.
//
// Events are bound to CPUs even for a single process, and the kernel side picks
// its samples: events that follow a task begin anew with each thread and child,
// so those that live for less than a period would never be sampled.
func (s *Source) Attach(t target.Target, specs []perfevent.Spec, rate Rate) error {
	s.events = events{
		specs:   specs,
		rate:    rate,
		program: s.objects.Oncpu.FD(),
		perCPU:  map[int]*cpuEvents{},
		cpus:    t.CPUs,
		counted: map[int]uint64{},
	}
	if err := s.fillTarget(t); err != nil {
		return err
	}
	online, err := perfevent.OnlineCPUs()
	if err != nil {
		return err
	}
	return s.events.follow(online)
}

func (e *events) attr(spec perfevent.Spec) perfevent.Attr {
	attr := spec.Attr()
	attr.Frequency, attr.Period = e.rate.Frequency, e.rate.Period
	attr.Disabled = true
	return attr
}

// follow opens events on CPUs that have none, closes those of CPUs that went
// offline, and replaces those that stand still because their CPU was away for
// a moment.
func (e *events) follow(online []int) error {
	for cpu, on := range e.perCPU {
		if !slices.Contains(online, cpu) || slices.ContainsFunc(on.open, (*perfevent.Event).Stalled) {
			e.drop(cpu)
		}
	}
	for _, cpu := range online {
		if _, open := e.perCPU[cpu]; open || len(e.cpus) > 0 && !slices.Contains(e.cpus, cpu) {
			continue
		}
		on, err := e.openCPU(cpu)
		if len(on.open) > 0 {
			e.perCPU[cpu] = on
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openCPU opens cpu's events; none if it just went offline.
func (e *events) openCPU(cpu int) (*cpuEvents, error) {
	on := &cpuEvents{}
	for _, spec := range e.specs {
		if !spec.HasCPU(cpu) {
			continue
		}
		event, err := perfevent.Open(e.attr(spec), -1, cpu, -1, 0)
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return on, err
		}
		on.open = append(on.open, event)
		if err := event.AttachBPF(e.program); err != nil {
			return on, err
		}
		if ring, err := event.Map(throttlePages); err == nil {
			on.rings = append(on.rings, ring) // without it throttling goes unseen, no more
		}
		if e.enabled {
			if err := event.Enable(); err != nil {
				return on, err
			}
		}
	}
	return on, nil
}

// drop closes cpu's events and keeps what they counted.
func (e *events) drop(cpu int) {
	on := e.perCPU[cpu]
	if count, err := on.count(); err == nil {
		e.counted[cpu] += count
	}
	_ = on.close() // its CPU is gone; there is nothing left to fail
	delete(e.perCPU, cpu)
}

// count sums what the CPU's events counted.
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

// countedByCPU returns how many events were counted on each CPU, in ns for
// clocks.
func (e *events) countedByCPU() (map[int]uint64, error) {
	counted := maps.Clone(e.counted)
	for cpu, on := range e.perCPU {
		count, err := on.count()
		if err != nil {
			return nil, fmt.Errorf("on CPU %d: %w", cpu, err)
		}
		counted[cpu] += count
	}
	return counted, nil
}

// all returns a sequence of the open events.
func (e *events) all() iter.Seq[*perfevent.Event] {
	return func(yield func(*perfevent.Event) bool) {
		for _, on := range e.perCPU {
			for _, event := range on.open {
				if !yield(event) {
					return
				}
			}
		}
	}
}

// Enable starts sampling.
func (s *Source) Enable() error {
	s.events.enabled = true
	for event := range s.events.all() {
		if err := event.Enable(); err != nil {
			return err
		}
	}
	return nil
}

// Disable stops sampling. When it returns no program runs any more.
func (s *Source) Disable() error {
	s.events.enabled = false
	var errs []error
	for event := range s.events.all() {
		errs = append(errs, event.Disable())
	}
	return errors.Join(errs...)
}

// CheckThrottling counts how often the kernel paused sampling since the last
// call.
func (s *Source) CheckThrottling() error {
	var errs []error
	for _, on := range s.events.perCPU {
		for _, ring := range on.rings {
			_, err := ring.Read(func(r perfevent.Record) {
				if _, ok := r.(perfevent.Throttle); ok {
					s.events.throttled++
				}
			})
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// FollowCPUs takes CPUs in that came online, also those that were offline for
// a moment only, and lets go of those that went offline. It is for a source
// that is enabled.
func (s *Source) FollowCPUs(online []int) error { return s.events.follow(online) }

func (e *events) close() error {
	var errs []error
	for _, on := range e.perCPU {
		errs = append(errs, on.close())
	}
	return errors.Join(errs...)
}
