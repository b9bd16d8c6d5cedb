// Package alloc measures allocations of memory by stack, with bpf/alloc.bpf.c: uprobes at
// the functions of allocators, which it finds by the symbols of the files that processes
// map.
package alloc

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile"
)

// DefaultRate is the default of [Config.Rate], as in Go's and tcmalloc's heap profiles.
const DefaultRate = 512 << 10

var _ interface {
	source.Source
	source.FileFollower
	source.Limited
} = (*Source)(nil)

// Source is the loaded kernel side.
type Source struct {
	attach.Source
	live     bool // see [Config.Live]
	probed   probed
	target   target.Target
	files    files
	finder   *debugfile.Finder
	overhead overhead
	counting bool
}

// Load loads the programs and their maps. It returns the kernel's errors as cilium/ebpf
// does.
func Load(o probe.Options, c Config) (*Source, error) {
	spec, err := bpf.LoadAlloc()
	if err != nil {
		return nil, err
	}
	// The others jump to the one that walks, so they must be of one type.
	for _, name := range append(programs[:], bpf.AllocProgAllocUretprobe, bpf.AllocProgAllocWalk) {
		event := &events.Probe{Event: events.Event{Kind: events.Uprobe}}
		if err := (attach.Programs{Uprobe: name}).Adapt(spec, event, o.Types); err != nil {
			return nil, err
		}
	}
	if c.Live {
		spec.Maps[bpf.AllocMapAllocations].MaxEntries = max(c.PendingEntries, 1)
	}
	spec.Maps[bpf.CountMapFields].MaxEntries = uint32(maxPlaces * arguments)
	s := &Source{live: c.Live}
	if s.finder, err = events.DebugFiles(); err != nil {
		return nil, err
	}
	s.overhead.max = c.MaxOverhead
	if s.probed.wanted = !c.NoProbes; s.probed.wanted {
		if s.probed.possible, err = attach.HasCookies(o.Types); err != nil {
			return nil, err
		}
	}
	s.Snapshots, err = source.LoadWithSnapshots(spec, o, map[string]any{
		bpf.AllocVarRate:    uint64(max(c.Rate, 1)),
		bpf.AllocVarLive:    c.Live,
		bpf.CountVarAtEntry: true,
		// The places of the probes of several files.
		bpf.CountVarByPlace: true,
	}, counted)
	if err != nil {
		return nil, err
	}
	if err := s.Maps[bpf.AllocMapWalk].Put(uint32(0), s.Programs[bpf.AllocProgAllocWalk]); err != nil {
		return nil, errors.Join(fmt.Errorf("connect the programs: %w", err), s.Close())
	}
	for program, name := range programs {
		var returned *ebpf.Program
		if bpf.AllocAllocProgram(program) == ended {
			returned = s.Programs[bpf.AllocProgAllocUretprobe]
		}
		s.Attached = append(s.Attached, attach.NewUprobe(s.Programs[name], returned))
	}
	return s, nil
}

// counted converts an entry of a count map.
func counted(k bpf.AllocCountKey, v bpf.AllocCountValue) (stacks.Key, stacks.Values) {
	return stacks.Key{ID: k.Id, TID: k.Tid, CPU: k.Cpu}, stacks.Values{
		Objects: v.Objects, Bytes: v.Bytes, LiveObjects: v.LiveObjects, LiveBytes: v.LiveBytes,
	}
}

// Attach prepares to attach to the files that [Source.Follow] gets.
func (s *Source) Attach(t target.Target) error {
	s.target = t
	if err := uprobe.CheckTracers(t); err != nil {
		return err
	}
	return s.FillTargets(t)
}

// Begin implements [source.Source]. It fails if no allocator of the named processes can be measured.
func (s *Source) Begin() error {
	if err := s.files.check(s.target); err != nil {
		return err
	}
	s.counting = true
	return errors.Join(s.Source.Begin(), s.overhead.begin(s))
}

// Enough implements [source.Limited]. It returns how much the uprobes slow the target down if it is too much, and what to do.
func (s *Source) Enough() string {
	o := s.overhead
	if o.exceeded == "" {
		return ""
	}
	return fmt.Sprintf("%s, more than %s allows (%.0f %%); %s", o.exceeded, usage.MaxOverhead, 100*o.max, o.remedy)
}

// Check measures the overhead.
func (s *Source) Check() error { return s.overhead.check(s) }

// End implements [source.Source].
func (s *Source) End() error { return errors.Join(s.overhead.end(s), s.Source.End()) }

// Stats implements [source.Source].
func (s *Source) Stats() (probe.Stats, error) {
	stats, err := s.Source.Stats()
	traps, trapsErr := s.traps()
	stats.Losses[profile.LossImpossible] = traps.Impossible
	return stats, errors.Join(err, trapsErr)
}

// traps returns the number of hits so far.
func (s *Source) traps() (sum bpf.AllocTrapCounts, err error) {
	var perCPU []bpf.AllocTrapCounts
	if err := s.Maps[bpf.AllocMapTraps].Lookup(uint32(0), &perCPU); err != nil {
		return sum, fmt.Errorf("read the number of hits: %w", err)
	}
	for _, c := range perCPU {
		for program, hits := range c.Hits {
			sum.Hits[program] += hits
		}
		sum.Others += c.Others
		sum.Walking += c.Walking
		sum.Impossible += c.Impossible
	}
	return sum, nil
}
