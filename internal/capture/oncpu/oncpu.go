// Package oncpu samples code on the CPUs: bpf/oncpu.bpf.c counts each overflow of a
// hardware or timer perf event.
package oncpu

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
)

// Options configure the kernel side.
type Options struct {
	probe.Options
	// Idle includes the idle task.
	Idle bool
	// Parallelism divides the weight of each sample by the number of running threads of the target, as
	// the value [Elapsed].
	Parallelism bool
	// Specs are the events to sample. A hybrid machine has several, one per kind
	// of core.
	Specs []perfevent.Spec
	Rate  Rate
}

var _ interface {
	source.Source
	source.Reducible
	source.Recordable
	source.Rewalker
} = (*Source)(nil)

// Source is the loaded kernel side and the events attached to it.
type Source struct {
	source.Snapshots
	options Options
	events  *sampling.Events
	clocks  bool // whether the events count time
}

// Rate is the sampling rate.
type Rate = sampling.Rate

// Load loads the program and its maps. It returns the kernel's errors as cilium/ebpf
// does.
func Load(o Options) (*Source, error) {
	spec, err := bpf.LoadOnCPU()
	if err != nil {
		return nil, err
	}
	variables, err := chooseProgram(spec, o)
	if err != nil {
		return nil, err
	}
	slower, oneIn := o.Rules.Rates(o.Rate.Frequency)
	maps.Copy(variables, map[string]any{
		bpf.OnCPUVarIncludeIdle: o.Idle,
		bpf.OnCPUVarRulesSlower: slower,
		bpf.OnCPUVarRulesOneIn:  oneIn,
	})
	base, err := source.LoadWithSnapshots(spec, o.Options, variables, counted)
	if err != nil {
		return nil, err
	}
	o.Types = nil // megabytes, which the probe keeps as long as it needs them
	return &Source{Snapshots: base, options: o}, nil
}

// chooseProgram removes the program that does not run from spec, and returns variables of the other.
func chooseProgram(spec *ebpf.CollectionSpec, o Options) (map[string]any, error) {
	if !o.Parallelism {
		delete(spec.Programs, bpf.OnCPUProgOncpuParallel)
		delete(spec.Programs, bpf.OnCPUProgFindRunQueue)
		return map[string]any{}, nil
	}
	delete(spec.Programs, bpf.OnCPUProgOncpu)
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count the CPUs: %w", err)
	}
	spec.Maps[bpf.OnCPUMapRunQueues].MaxEntries = uint32(cpus)
	return map[string]any{bpf.OnCPUVarPossibleCpus: uint32(cpus)}, nil
}

// counted converts an entry of a count map.
func counted(k bpf.OnCPUCountKey, v bpf.OnCPUCountValue) (stacks.Key, stacks.Values) {
	return stacks.Key{ID: k.Id, TID: k.Tid, CPU: k.Cpu},
		stacks.Values{Samples: v.Samples, Weight: v.Weight, Elapsed: v.Elapsed}
}

// Stats reads the kernel side's counters.
func (s *Source) Stats() (probe.Stats, error) {
	st, err := s.Probe.Stats()
	if err != nil {
		return st, err
	}
	st.Losses[profile.LossThrottled] = s.events.Throttled()
	st.Losses[profile.LossSkipped], err = s.skipped()
	return st, err
}

func (s *Source) skipped() (uint64, error) {
	runs, periods, idle, err := s.counters()
	if err != nil {
		return 0, err
	}
	return s.events.Skipped(runs, periods, idle)
}

// counters returns the arguments of [sampling.Events.Skipped].
func (s *Source) counters() (runs, periods, idle []uint64, err error) {
	if runs, err = s.StatPerCPU(bpf.StatRuns); err != nil {
		return nil, nil, nil, err
	}
	if periods, err = s.StatPerCPU(bpf.StatPeriods); err != nil {
		return nil, nil, nil, err
	}
	if s.clocks && !s.options.Idle {
		idle, err = s.StatPerCPU(bpf.StatIdlePeriods)
	}
	return runs, periods, idle, err
}

// Attach opens disabled events on the target's CPUs and attaches the program.
func (s *Source) Attach(t target.Target) (err error) {
	if err := s.FillTargets(t); err != nil {
		return err
	}
	s.clocks = !slices.ContainsFunc(s.options.Specs, func(of perfevent.Spec) bool { return !of.IsTime() })
	program := bpf.OnCPUProgOncpu
	if s.options.Parallelism {
		program = bpf.OnCPUProgOncpuParallel
		online, err := perfevent.OnlineCPUs()
		if err != nil {
			return err
		}
		if err := s.findRunQueues(online); err != nil {
			return err
		}
	}
	s.events, err = sampling.Open(sampling.Config{Specs: s.options.Specs, Rate: s.options.Rate, CPUs: t.CPUs, Program: s.Programs[program].FD()})
	return err
}

// Enable implements [source.Source].
func (s *Source) Enable() error { return s.events.Enable() }

// Detach implements [source.Source]. When it returns, no program runs any more.
func (s *Source) Detach() error { return s.events.Disable() }

// Check counts how often the kernel has paused sampling since the last call.
func (s *Source) Check() error { return s.events.CheckThrottling() }

// FollowCPUs adds CPUs that came online, including those that were offline only for
// a moment, and removes those that went offline. The source must be enabled.
func (s *Source) FollowCPUs(online []int) error {
	return errors.Join(s.findRunQueues(online), s.events.Follow(online))
}

// Reduce implements [source.Reducible]. Samples keep the weights that they were taken with.
func (s *Source) Reduce(by uint64) error {
	rate := s.options.Rate.Reduced(by)
	if err := s.events.SetRate(rate); err != nil {
		return err
	}
	_, oneIn := s.options.Rules.Rates(rate.Frequency)
	if err := s.Variables[bpf.OnCPUVarRulesOneIn].Set(oneIn); err != nil {
		return fmt.Errorf("change the rates of rules: %w", err)
	}
	runs, periods, idle, err := s.counters()
	if err != nil {
		return err
	}
	return s.events.Mark(runs, periods, idle)
}

// Close detaches the events and unloads the kernel side.
func (s *Source) Close() error { return errors.Join(s.events.Close(), s.Snapshots.Close()) }
