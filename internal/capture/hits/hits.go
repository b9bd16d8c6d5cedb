// Package hits counts the hits of events by stack, with bpf/count.bpf.c: tracepoints,
// functions of the kernel and of files, and USDT probes.
package hits

import (
	"errors"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
)

// Options configure the kernel side.
type Options struct {
	probe.Options
	// Probe is the event. nil loads the programs of all kinds of events, which then
	// cannot be attached.
	Probe *events.Probe
	Query events.Query
	// Every counts one of this many hits of an event on a CPU, with this weight. 0 means 1.
	Every uint64
	// MaxRate is the maximum number of hits to count per second and CPU; 0 means no
	// limit.
	MaxRate uint64
}

var _ interface {
	source.Source
	source.Recordable
	source.EventPlacer
} = (*Source)(nil)

// Source is the loaded kernel side of an event.
type Source struct {
	attach.Source
	markers markers
}

// Load loads the programs and their maps. It returns the kernel's errors as cilium/ebpf
// does.
func Load(o Options) (*Source, error) {
	spec, err := bpf.LoadCount()
	if err != nil {
		return nil, err
	}
	variables := map[string]any{
		bpf.CountVarEvery:    max(o.Every, 1),
		bpf.CountVarMaxRate:  o.MaxRate,
		bpf.CountVarFiltered: !o.Query.Filter.Empty(),
		bpf.CountVarWeighed:  o.Query.Weight != "",
		bpf.CountVarAtEntry:  true, // without an event, load all of the code
	}
	if o.Probe != nil {
		if err := programs.Adapt(spec, o.Probe, o.Types); err != nil {
			return nil, err
		}
		attach.Prepare(spec, variables, o.Probe)
		if o.Every > 1 {
			spec.Maps[bpf.CountMapTurns].MaxEntries = uint32(len(o.Probe.Points))
		}
	}
	s := new(Source)
	s.Snapshots, err = source.LoadWithSnapshots(spec, o.Options, variables, counted)
	if err != nil || o.Probe == nil {
		return s, err
	}
	s.Attached = []*attach.Program{programs.Of(s.Programs, o.Probe)}
	s.markers.probe = o.Probe
	if err := attach.Fill(s.Maps, o.Query.Filter, o.Probe); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// programs are the programs of bpf/count.bpf.c.
var programs = attach.Programs{
	Tracepoint: bpf.CountProgHitTracepoint, Kprobe: bpf.CountProgHitKprobe, Uprobe: bpf.CountProgHitUprobe,
	Uretprobe: bpf.CountProgHitUretprobe,
}

// counted converts an entry of a count map.
func counted(k bpf.CountCountKey, v bpf.CountCountValue) (stacks.Key, stacks.Values) {
	return stacks.Key{ID: k.Id, TID: k.Tid, CPU: k.Cpu, Detail: uint64(k.Point)}, stacks.Values{Hits: v.Hits, Weight: v.Weight}
}

// Negative returns how many hits had a negative weight, which counts as 0.
func (s *Source) Negative() (uint64, error) { return s.StatSum(bpf.StatNegative) }
