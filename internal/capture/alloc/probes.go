package alloc

import (
	"errors"
	"fmt"

	"fulgur/internal/bpf"
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

// arguments is the maximum number of a probe's arguments.
const arguments = int(bpf.AllocProbeLimitsPROBE_ARGUMENTS)

// The maximum numbers of different places of the probes' arguments: those that a file adds to
// the others, so that no file can use up all, and those of all files.
const (
	maxFilePlaces = 64
	maxPlaces     = int(bpf.CountFieldLimitsFIELD_MAX_PLACES) - maxFilePlaces
)

// probed has the probes of the target.
type probed struct {
	wanted   bool // whether to look for probes
	possible bool // whether the kernel can measure them
	// last has the places of the arguments of all probes so far.
	last  *events.Probe
	names []string // of files with probes
}

// probes are the probes of a file.
type probes struct{ alloc, free *events.Probe }

// probesIn returns the probes of a file, or nil if it has none or they are not measured.
func (s *Source) probesIn(file *elffile.File, path string) (found *probes, err error) {
	if !s.probed.wanted {
		return nil, nil
	}
	before := s.probed.last
	defer func() {
		if found == nil {
			s.probed.last = before // the places of its arguments are not used
		}
	}()
	alloc, err := s.probe(file, path, "alloc", arguments)
	if err != nil || len(alloc.Points) == 0 {
		return nil, err
	}
	if !s.probed.possible {
		return nil, errors.New("this needs Linux 5.15; its functions are measured instead")
	}
	free, err := s.probe(file, path, "free", 1)
	if err != nil {
		return nil, err
	}
	if s.live && len(free.Points) == 0 {
		return nil, errors.New("it does not report when memory is freed")
	}
	if err := checkPlaces(free, before); err != nil {
		return nil, err
	}
	if err := s.writePlaces(free, placesOf(before)); err != nil {
		return nil, err
	}
	return &probes{alloc, free}, nil
}

// writePlaces passes the places after the first ones to the programs.
func (s *Source) writePlaces(p *events.Probe, first int) error {
	fields := p.Layout()
	for place := first; place < len(p.Places); place++ {
		for i := range arguments {
			f := fields[place*int(bpf.CountFieldLimitsFIELD_PLACE_FIELDS)+int(events.ShownField(i))]
			if err := s.Maps[bpf.CountMapFields].Put(uint32(place*arguments+i), f); err != nil {
				return fmt.Errorf("write the places of the arguments of %s: %w", p.Event, err)
			}
		}
	}
	return nil
}

// checkPlaces limits the places that a file adds to those of the files before it.
func checkPlaces(all, before *events.Probe) error {
	switch n := len(all.Places); {
	case n-placesOf(before) > maxFilePlaces:
		return fmt.Errorf("the arguments of its probes %s are in %d different places, more than %d", provider, n-placesOf(before), maxFilePlaces)
	case n > maxPlaces:
		return fmt.Errorf("the arguments of the probes %s of all files are in more than %d different places", provider, maxPlaces)
	}
	return nil
}

func placesOf(p *events.Probe) int {
	if p == nil {
		return 0
	}
	return len(p.Places)
}

// probe finds a probe with arguments in a file.
func (s *Source) probe(file *elffile.File, path, name string, wanted int) (*events.Probe, error) {
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
		for i := range wanted {
			if len(point.Shown) <= i || point.Shown[i].Name != fmt.Sprintf("arg%d", i) {
				return nil, fmt.Errorf("argument %d of its probe %s:%s cannot be read", i, provider, name)
			}
		}
	}
	s.probed.last = p
	return p, nil
}

// functions returns the places of the probes as functions, to learn the cost of their hits.
func (p *probes) functions() (all []function) {
	for _, point := range p.alloc.Points {
		all = append(all, function{name: point.Name, offset: point.Address, program: sampled})
	}
	for _, point := range p.free.Points {
		all = append(all, function{name: point.Name, offset: point.Address, program: released})
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
