// Package faults measures page faults, minor and major, all or every Nth, by stack
// and file, with bpf/faults.bpf.c.
package faults

import (
	"errors"
	"fmt"
	"math/bits"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
)

var _ interface {
	source.Source
	source.Recordable
} = (*Source)(nil)

// Source is the loaded kernel side and the events attached to it.
type Source struct {
	source.Base
	period       uint64
	minor, major *sampling.Events
	latency      error // why handling times are unknown
}

// Load loads the programs and their maps. If the kernel rejects the program that
// times the handling of faults, it goes without. It returns the kernel's errors as
// cilium/ebpf does.
func Load(o probe.Options, c Config) (*Source, error) {
	spec, err := bpf.LoadFaults()
	if err != nil {
		return nil, err
	}
	walk, drop, err := chooseWalk()
	if err != nil {
		return nil, err
	}
	begin := spec.Programs[bpf.FaultsProgFaultBegin]
	delete(spec.Programs, bpf.FaultsProgFaultBegin)
	delete(spec.Programs, drop)
	p, err := probe.Load(spec, o, map[string]any{
		bpf.FaultsVarByPage:    c.Offsets,
		bpf.FaultsVarPageShift: uint32(bits.TrailingZeros(uint(os.Getpagesize()))),
	}, counted)
	if err != nil {
		return nil, err
	}
	s := &Source{Base: source.Base{Probe: p}, period: max(c.Period, 1)}
	if err := p.Maps[bpf.FaultsMapFaultWalks].Put(uint32(0), p.Programs[walk]); err != nil {
		return nil, errors.Join(fmt.Errorf("connect the BPF programs: %w", err), s.Close())
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{bpf.FaultsProgFaultBegin: begin}
	s.latency = p.Add(p.LoadLater(spec))
	return s, nil
}

// chooseWalk returns the name of the program that finds mappings in a way that the
// kernel supports, and the name of the other; see bpf/faults.bpf.c.
func chooseWalk() (use, drop string, err error) {
	byHelper, byTree := bpf.FaultsProgFaultWalk, bpf.FaultsProgFaultWalkByTree
	memlock.Lift() // the kernel has to load a program for the answer
	err = features.HaveProgramHelper(ebpf.PerfEvent, asm.FnFindVma)
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		return byTree, byHelper, nil
	case err != nil:
		return "", "", fmt.Errorf("probe the helper bpf_find_vma: %w", err)
	}
	return byHelper, byTree, nil
}

// Kind is the kind of a page.
type Kind uint8

// Kinds of pages.
const (
	Unknown   = Kind(bpf.FaultsPageKindPAGE_UNKNOWN)
	Anonymous = Kind(bpf.FaultsPageKindPAGE_ANONYMOUS)
	File      = Kind(bpf.FaultsPageKindPAGE_FILE)
)

// Page is the decoded detail of a sample.
type Page struct {
	Kind Kind
	// Offset is the page's offset in its file, in bytes; 0 unless pages are
	// distinguished.
	Offset uint64
}

// kindMask masks the kind, which is in the low bits of a page's offset. Pages have
// at least 4 KiB, so these bits are free.
const kindMask = 1<<12 - 1

// ParseDetail decodes the detail of a sample of this source.
func ParseDetail(detail uint64) Page {
	return Page{Kind(detail & kindMask), detail &^ kindMask}
}

func (p Page) detail() uint64 { return p.Offset | uint64(p.Kind) }

// counted converts an entry of a count map.
func counted(k bpf.FaultsCountKey, v bpf.FaultsCountValue) (stacks.Key, stacks.Values) {
	return stacks.Key{ID: k.Id, File: k.File, TID: k.Tid, CPU: uint32(k.Cpu), Detail: Page{Kind(k.Kind), k.Page * uint64(os.Getpagesize())}.detail()},
		stacks.Values{Samples: v.Samples, Minor: v.Minor, Major: v.Major, Handling: v.Latency, Faults: v.Minor + v.Major}
}

// Attach opens disabled events on the target's CPUs and attaches the programs.
func (s *Source) Attach(t target.Target) error {
	if err := s.FillTargets(t); err != nil {
		return err
	}
	open := func(event, program string) (*sampling.Events, error) {
		spec, err := perfevent.ParseEvent(event)
		if err != nil {
			return nil, err
		}
		return sampling.Open(sampling.Config{
			Specs:   []perfevent.Spec{spec},
			Rate:    sampling.Rate{Period: s.period},
			CPUs:    t.CPUs,
			Program: s.Programs[program].FD(),
		})
	}
	var err error
	if s.minor, err = open("minor-faults", bpf.FaultsProgMinorFault); err != nil {
		return err
	}
	if s.major, err = open("major-faults", bpf.FaultsProgMajorFault); err != nil {
		return err
	}
	if s.latency == nil {
		// Some kernels load the program but reject its attachment.
		s.latency = s.AttachTracing(bpf.FaultsProgFaultBegin)
	}
	return nil
}

// Untimed returns why the handling times of faults are unknown, nil if they are
// known.
func (s *Source) Untimed() error { return s.latency }

// Enable implements [source.Source].
func (s *Source) Enable() error { return errors.Join(s.minor.Enable(), s.major.Enable()) }

// Detach implements [source.Source].
func (s *Source) Detach() error {
	return errors.Join(s.minor.Disable(), s.major.Disable(), s.Probe.Detach())
}

// Check counts how often the kernel has paused sampling since the last call.
func (s *Source) Check() error {
	return errors.Join(s.minor.CheckThrottling(), s.major.CheckThrottling())
}

// FollowCPUs adds CPUs that came online, and removes those that went offline.
func (s *Source) FollowCPUs(online []int) error {
	return errors.Join(s.minor.Follow(online), s.major.Follow(online))
}

// Stats reads the kernel side's counters.
func (s *Source) Stats() (probe.Stats, error) {
	st, err := s.Probe.Stats()
	if err != nil {
		return st, err
	}
	for _, of := range []struct {
		events        *sampling.Events
		runs, periods bpf.Stat
	}{
		{s.minor, bpf.StatRuns, bpf.StatPeriods},
		{s.major, bpf.StatMajorRuns, bpf.StatMajorPeriods},
	} {
		runs, err := s.StatPerCPU(of.runs)
		if err != nil {
			return st, err
		}
		periods, err := s.StatPerCPU(of.periods)
		if err != nil {
			return st, err
		}
		skipped, err := of.events.Skipped(runs, periods, nil)
		if err != nil {
			return st, fmt.Errorf("count page faults: %w", err)
		}
		st.Losses[profile.LossSkipped] += skipped
		st.Losses[profile.LossThrottled] += of.events.Throttled()
	}
	return st, nil
}

// Close detaches the events and unloads the kernel side.
func (s *Source) Close() error {
	return errors.Join(s.minor.Close(), s.major.Close(), s.Probe.Close())
}
