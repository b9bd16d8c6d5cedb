package alloc

import (
	"errors"
	"fmt"

	"fulgur/bpf"
	"fulgur/internal/capture/events"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/symbols/elffile"
)

// provider is the provider of the USDT probes by which programs report samples of their
// allocations, as OpenTelemetry's eBPF profiler expects them: alloc(address, size, bytes) and
// free(address), for sampled allocations alone. bytes is the number of allocated bytes that the
// sample stands for. See design-docs/00003-memory-profiling in
// github.com/open-telemetry/opentelemetry-ebpf-profiler.
const provider = "otel_memory"

// maxPlaces is the maximum number of different places of the probes' arguments.
const maxPlaces = 64

// probed has the probes of the target.
type probed struct {
	possible bool // whether to look for probes
	// last has the places of the arguments of all probes so far.
	last  *events.Probe
	names []string // of files with probes
}

// probes are the probes of a file.
type probes struct{ alloc, free *events.Probe }

// probesIn returns the probes of a file, or nil if it has none or they are not measured.
func (s *Source) probesIn(file *elffile.File, path string) (found *probes, err error) {
	if !s.probed.possible {
		return nil, nil
	}
	before := s.probed.last
	defer func() {
		if found == nil {
			s.probed.last = before // the places of its arguments are not used
		}
	}()
	alloc, err := s.probe(file, path, "alloc", 3)
	if err != nil || len(alloc.Points) == 0 {
		return nil, err
	}
	free, err := s.probe(file, path, "free", 1)
	if err != nil {
		return nil, err
	}
	if s.live && len(free.Points) == 0 {
		return nil, errors.New("it does not report when memory is freed")
	}
	return &probes{alloc, free}, nil
}

// probe finds a probe with arguments in a file, and passes their places to the programs.
func (s *Source) probe(file *elffile.File, path, name string, arguments int) (*events.Probe, error) {
	e := events.Event{Kind: events.USDT, Path: path, Group: provider, Name: name}
	p, err := events.FindUSDT(e, file, events.Query{Shown: true}, s.probed.last)
	if err != nil {
		return nil, err
	}
	if len(p.Points) > events.DefaultMaxProbes {
		return nil, fmt.Errorf("its probe %s:%s is in %d places, more than %d", provider, name, len(p.Points), events.DefaultMaxProbes)
	}
	for reason := range p.LeftOut {
		return nil, fmt.Errorf("a place of its probe %s:%s cannot be measured: %s", provider, name, reason)
	}
	for _, point := range p.Points {
		for i := range arguments {
			if len(point.Shown) <= i || point.Shown[i].Name != fmt.Sprintf("arg%d", i) {
				return nil, fmt.Errorf("argument %d of its probe %s:%s cannot be read", i, provider, name)
			}
		}
	}
	if len(p.Places) > maxPlaces {
		return nil, fmt.Errorf("the arguments of the probes %s are in more than %d different places", provider, maxPlaces)
	}
	known := 0
	if s.probed.last != nil {
		known = len(s.probed.last.Layout())
	}
	for i, f := range p.Layout()[known:] {
		if err := s.Maps[bpf.CountMapFields].Put(uint32(known+i), f); err != nil {
			return nil, fmt.Errorf("write the fields of %s: %w", e, err)
		}
	}
	s.probed.last = p
	return p, nil
}

// functions returns the places of the probes as functions, to learn the cost of their hits.
func (p *probes) functions() (all []function) {
	for _, point := range p.alloc.Points {
		all = append(all, function{point.Name, point.Address, sampled})
	}
	for _, point := range p.free.Points {
		all = append(all, function{point.Name, point.Address, released})
	}
	return all
}

// attachProbes attaches the programs to the probes of an open file.
func (s *Source) attachProbes(p *probes, o *safeopen.File) error {
	p.alloc.Files, p.free.Files = []*safeopen.File{o}, []*safeopen.File{o}
	if err := s.Variables[bpf.AllocVarProbes].Set(true); err != nil {
		return fmt.Errorf("measure the probes %s: %w", provider, err)
	}
	// Frees first: a block may be freed at once.
	if s.live && len(p.free.Points) > 0 {
		if err := s.Attached[released].AttachTo(p.free, s.target); err != nil {
			return err
		}
	}
	return s.Attached[sampled].AttachTo(p.alloc, s.target)
}
