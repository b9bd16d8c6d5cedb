package oncpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
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
	open    []*perfevent.Event
	perCPU  map[int]cpuEvents
	cpus    []int // asked for; empty means all that are online
	enabled bool

	throttled uint64
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
		perCPU:  map[int]cpuEvents{},
		cpus:    t.CPUs,
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

// fillTarget puts the processes or threads of t into the kernel side's target
// set, and has it follow forks first where children belong to it. The kernel
// side finds out by itself when they started.
func (s *Source) fillTarget(t target.Target) error {
	ids := t.PIDs
	if t.Scope == target.Threads {
		ids = t.TIDs
	}
	if len(ids) == 0 {
		return nil
	}
	programs := []*ebpf.Program{s.objects.TargetFree}
	if t.Children {
		programs = append(programs, s.objects.TargetFork)
	}
	for _, p := range programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("follow the target's forks and ends: %w", err)
		}
		s.links = append(s.links, l)
	}
	for _, id := range ids {
		if err := s.objects.TargetIds.Put(uint32(id), uint64(0)); err != nil {
			return fmt.Errorf("target %d: %w", id, err)
		}
	}
	return nil
}

func (e *events) attr(spec perfevent.Spec) perfevent.Attr {
	attr := spec.Attr()
	attr.Frequency, attr.Period = e.rate.Frequency, e.rate.Period
	attr.Disabled = true
	return attr
}

func (e *events) openOne(attr perfevent.Attr, cpu int) (*perfevent.Event, error) {
	event, err := perfevent.Open(attr, -1, cpu, -1, 0)
	if err != nil {
		return nil, err
	}
	if err := event.AttachBPF(e.program); err != nil {
		return nil, errors.Join(err, event.Close())
	}
	e.open = append(e.open, event)
	return event, nil
}

// follow opens events on CPUs that have none, and closes those of CPUs that
// went offline.
func (e *events) follow(online []int) error {
	for cpu := range e.perCPU {
		if !slices.Contains(online, cpu) {
			e.drop(cpu)
		}
	}
	for _, cpu := range online {
		if _, open := e.perCPU[cpu]; open || len(e.cpus) > 0 && !slices.Contains(e.cpus, cpu) {
			continue
		}
		if err := e.openCPU(cpu); err != nil {
			return err
		}
	}
	return nil
}

func (e *events) openCPU(cpu int) error {
	var on cpuEvents
	defer func() { e.perCPU[cpu] = on }()
	for _, spec := range e.specs {
		if !spec.HasCPU(cpu) {
			continue
		}
		event, err := e.openOne(e.attr(spec), cpu)
		if errors.Is(err, unix.ENODEV) {
			continue // the CPU went offline a moment ago
		}
		if err != nil {
			return err
		}
		on.open = append(on.open, event)
		if ring, err := event.Map(throttlePages); err == nil {
			on.rings = append(on.rings, ring) // without it throttling goes unseen, no more
		}
		if e.enabled {
			if err := event.Enable(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *events) drop(cpu int) {
	for _, event := range e.perCPU[cpu].open {
		e.open = slices.DeleteFunc(e.open, func(o *perfevent.Event) bool { return o == event })
		_ = event.Close() // its CPU is gone; there is nothing left to fail
	}
	delete(e.perCPU, cpu)
}

// Enable starts sampling.
func (s *Source) Enable() error {
	s.events.enabled = true
	for _, event := range s.events.open {
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
	for _, event := range s.events.open {
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

// FollowCPUs takes CPUs in that came online and lets go of those that went
// offline.
func (s *Source) FollowCPUs(online []int) error { return s.events.follow(online) }

func (e *events) close() error {
	var errs []error
	for _, event := range e.open {
		errs = append(errs, event.Close())
	}
	return errors.Join(errs...)
}
