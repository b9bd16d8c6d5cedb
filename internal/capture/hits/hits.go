// Package hits counts the hits of events by stack, with bpf/count.bpf.c: tracepoints,
// functions of the kernel and of files, and USDT probes.
package hits

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"fulgur/bpf"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/rcu"
	"fulgur/internal/profile"
)

// DefaultMaxRate is the default of [Options.MaxRate]. A hit takes a few microseconds, so
// this many are about a fifth of a CPU.
const DefaultMaxRate = 100_000

// Options configure the kernel side.
type Options struct {
	probe.Options
	// Probe is the event. nil loads the programs of all kinds of events, which then
	// cannot be attached.
	Probe *events.Probe
	Query events.Query
	// Every is the number of hits of a CPU of which one counts, for all of them. 0 means
	// 1.
	Every uint64
	// MaxRate is the maximum number of hits to count per second and CPU; 0 means no
	// limit.
	MaxRate uint64
	// SkipKernel omits the kernel part of each stack.
	SkipKernel bool
	// Snapshots sends hits in processes without unwind tables as a [stacks.Snapshot].
	Snapshots bool
}

// Source is the loaded kernel side of an event.
type Source struct {
	source.Snapshots
	probe  *events.Probe
	links  links
	missed uint64 // by the kernel, counted when the links were closed
}

// Load loads the programs and their maps. It returns the kernel's errors as cilium/ebpf
// does.
func Load(o Options) (*Source, error) {
	spec, err := bpf.LoadCount()
	if err != nil {
		return nil, err
	}
	s := &Source{probe: o.Probe}
	byPlace := false
	if o.Probe != nil {
		if err := adapt(spec, o); err != nil {
			return nil, err
		}
		byPlace = len(o.Probe.Places) > 1
	}
	s.Snapshots, err = source.LoadWithSnapshots(spec, bpf.CountProgCountAgain, o.Snapshots, func(spec *ebpf.CollectionSpec) (*probe.Probe, error) {
		return probe.Load(spec, o.Options, map[string]any{
			bpf.CountVarSkipKernelStack: o.SkipKernel,
			bpf.CountVarSnapshots:       o.Snapshots,
			bpf.CountVarEvery:           max(o.Every, 1),
			bpf.CountVarMaxRate:         o.MaxRate,
			bpf.CountVarFiltered:        !o.Query.Filter.Empty(),
			bpf.CountVarWeighed:         o.Query.Weight != "",
			bpf.CountVarByPlace:         byPlace,
		}, counted)
	})
	if err != nil {
		return nil, err
	}
	if err := s.fill(o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// adapt leaves the program for the event's kind, and makes room for the fields.
func adapt(spec *ebpf.CollectionSpec, o Options) error {
	if len(o.Probe.Places) > 1 {
		kernel, err := probe.NewKernel(o.Types)
		if err != nil {
			return err
		}
		has, err := kernel.HasHelper("bpf_get_attach_cookie")
		if err == nil && !has {
			err = fmt.Errorf("%s: the fields are in %d different places, which needs Linux 5.15: choose fewer probes", o.Probe.Event, len(o.Probe.Places))
		}
		if err != nil {
			return err
		}
	}
	for _, name := range []string{bpf.CountProgCountTracepoint, bpf.CountProgCountKprobe, bpf.CountProgCountUprobe} {
		if name != program(o.Probe.Event.Kind) {
			delete(spec.Programs, name)
		}
	}
	spec.Programs[program(o.Probe.Event.Kind)].AttachType = attachType(o.Probe)
	spec.Maps[bpf.CountMapFields].MaxEntries = uint32(len(o.Probe.Layout()))
	return nil
}

// program returns the name of the program for a kind of events.
func program(k events.Kind) string {
	switch k {
	case events.Tracepoint:
		return bpf.CountProgCountTracepoint
	case events.Kprobe, events.Kretprobe:
		return bpf.CountProgCountKprobe
	}
	return bpf.CountProgCountUprobe
}

// fill writes the fields and the filter.
func (s *Source) fill(o Options) error {
	if o.Probe == nil {
		return nil
	}
	for i, f := range o.Probe.Layout() {
		if err := s.Maps[bpf.CountMapFields].Put(uint32(i), f); err != nil {
			return fmt.Errorf("write the fields of %s: %w", o.Probe.Event, err)
		}
	}
	for i, t := range o.Query.Filter.Terms() {
		if err := s.Maps[bpf.CountMapFilter].Put(uint32(i), t); err != nil {
			return fmt.Errorf("write the filter: %w", err)
		}
	}
	return nil
}

// counted converts an entry of a count map.
func counted(k bpf.CountCountKey, v bpf.CountCountValue) (stacks.Key, stacks.Values) {
	return stacks.Key{ID: k.Id, TID: k.Tid, CPU: k.Cpu}, stacks.Values{Hits: v.Hits, Weight: v.Weight}
}

// Attach attaches the program to all places. It does not count yet.
func (s *Source) Attach(t target.Target) (err error) {
	if err := s.FillTargets(t); err != nil {
		return err
	}
	s.links, err = attach(s.probe, s.Programs[program(s.probe.Event.Kind)], t)
	return err
}

// Enable starts counting.
func (s *Source) Enable() error {
	if err := s.Variables[bpf.CountVarCounting].Set(true); err != nil {
		return fmt.Errorf("start counting: %w", err)
	}
	return nil
}

// Disable stops counting and detaches the program, so that code has no breakpoints while
// fulgur looks up names.
func (s *Source) Disable() error {
	if err := s.Variables[bpf.CountVarCounting].Set(false); err != nil {
		return fmt.Errorf("stop counting: %w", err)
	}
	return errors.Join(s.detach(), rcu.Wait())
}

func (s *Source) detach() error {
	missed, err := s.links.missed()
	s.missed += missed
	err = errors.Join(err, s.links.Close())
	s.links = links{}
	return err
}

// Stats reads the kernel side's counters.
func (s *Source) Stats() (probe.Stats, error) {
	st, err := s.Probe.Stats()
	if err != nil {
		return st, err
	}
	missed, err := s.links.missed()
	st.Losses[profile.LossSkipped] += s.missed + missed
	if s.probe != nil {
		// Programs that were skipped because another one ran on the CPU.
		stats, statsErr := s.Programs[program(s.probe.Event.Kind)].Stats()
		if statsErr != nil {
			return st, cmp.Or(err, statsErr)
		}
		st.Losses[profile.LossSkipped] += stats.RecursionMisses
	}
	return st, err
}

// Negative returns how many hits had a negative weight, which counts as 0.
func (s *Source) Negative() (sum uint64, err error) {
	perCPU, err := s.StatPerCPU(bpf.StatNegative)
	for _, n := range perCPU {
		sum += n
	}
	return sum, err
}

// Close detaches the program and unloads the kernel side.
func (s *Source) Close() error { return errors.Join(s.links.Close(), s.Snapshots.Close()) }
