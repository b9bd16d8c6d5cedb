package attach

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
)

// Programs are the names of the programs for an event, one for each kind of event.
type Programs struct {
	Tracepoint, Kprobe, Uprobe string
	// Uretprobe is the program for points that are [events.Point.Replaced].
	Uretprobe string
	// Index is the index of the event in [Fill].
	Index int
}

// For returns the name of the program for a kind of events.
func (p Programs) For(k events.Kind) string {
	switch k {
	case events.Tracepoint:
		return p.Tracepoint
	case events.Kprobe, events.Kretprobe:
		return p.Kprobe
	}
	return p.Uprobe
}

// Adapt leaves only the program for an event in spec. It returns an error if the fields of
// the event's places differ, but the program could not know at which place it runs. If it
// could not know which of many system calls runs it, the program is attached to each of
// them.
func (p Programs) Adapt(spec *ebpf.CollectionSpec, e *events.Probe, types *btf.Cache) error {
	wanted := []string{p.For(e.Event.Kind)}
	if e.ReplacesReturns() {
		wanted = append(wanted, p.Uretprobe)
	}
	for _, name := range []string{p.Tracepoint, p.Kprobe, p.Uprobe, p.Uretprobe} {
		if !slices.Contains(wanted, name) {
			delete(spec.Programs, name)
		}
	}
	for _, name := range wanted {
		spec.Programs[name].AttachType = attachType(e)
	}
	return checkPlaces(e, types)
}

// Of returns the program for an event, one of those loaded.
func (p Programs) Of(loaded map[string]*ebpf.Program, e *events.Probe) *Program {
	return &Program{event: e, index: p.Index, program: loaded[p.For(e.Event.Kind)], returned: loaded[p.Uretprobe]}
}

// Program is the loaded program for an event.
type Program struct {
	event   *events.Probe
	index   int // of the event in Fill
	program *ebpf.Program
	// returned is the program for points that are [events.Point.Replaced], or nil.
	returned *ebpf.Program
	links    links
	// before is the number of hits that the kernel had missed when the measurement began, and
	// missed the number since then when it ended.
	before, missed  uint64
	ended, detached bool
	// closed has the error of links that are closed in the background.
	closed chan error
}

// NewUprobe returns a program for uprobes, which [Program.AttachTo] attaches, and one for points that are
// [events.Point.Replaced], nil if there are none. They must have been loaded for uprobes; see
// [Programs.Adapt].
func NewUprobe(program, returned *ebpf.Program) *Program {
	return &Program{event: &events.Probe{Event: events.Event{Kind: events.Uprobe}}, program: program, returned: returned}
}

// Attach attaches the program to all places of the event, in the processes of t alone if
// the kernel can do that.
func (p *Program) Attach(t target.Target) (err error) {
	p.links, err = attach(p.event, p.index, p.program, p.returned, t)
	return err
}

// AttachTo attaches the program to all places of another event.
func (p *Program) AttachTo(e *events.Probe, t target.Target) error {
	more, err := attach(e, p.index, p.program, p.returned, t)
	p.links.multi = append(p.links.multi, more.multi...)
	p.links.single = append(p.links.single, more.single...)
	p.links.only = append(p.links.only, more.only...)
	return err
}

// Detach detaches the program. Tracepoints are detached in the background, until
// [Program.Close]: the kernel takes about a tenth of a second for each, and code does not
// change. If the kernel does not detach uprobes in time, [Program.Close] returns the error: the
// measurement is valid.
func (p *Program) Detach() error {
	err := p.End()
	if p.detached {
		return err
	}
	p.detached = true
	p.closed = make(chan error, 1)
	if p.event.Event.Kind != events.Tracepoint {
		closeErr := p.links.Close()
		if errors.Is(closeErr, uprobe.ErrNoAnswer) {
			p.closed <- fmt.Errorf("detach %s: %w; breakpoints stay in programs until it does", p.event.Event, uprobe.ErrNoAnswer)
			return err
		}
		p.closed <- nil
		return errors.Join(err, closeErr)
	}
	go func() { p.closed <- p.links.Close() }()
	return err
}

// Close detaches the program, and returns when it is detached.
func (p *Program) Close() error {
	err := p.Detach()
	if p.closed != nil {
		err = errors.Join(err, <-p.closed)
		p.closed = nil
	}
	return err
}

// Begin notes that the measurement begins.
func (p *Program) Begin() (err error) {
	p.before, err = p.allMissed()
	return err
}

// End notes that the measurement ends.
func (p *Program) End() (err error) {
	if p.ended {
		return nil
	}
	p.missed, err = p.Missed()
	p.ended = true
	return err
}

// Missed returns how often the kernel skipped the program in the measurement because another one
// ran on the CPU, as far as the kernel counts that.
func (p *Program) Missed() (uint64, error) {
	if p.ended {
		return p.missed, nil
	}
	all, err := p.allMissed()
	return all - min(p.before, all), err
}

// allMissed is [Program.Missed] since the program was attached.
func (p *Program) allMissed() (uint64, error) {
	attached, err := p.links.missed()
	for _, program := range []*ebpf.Program{p.program, p.returned} {
		if program == nil {
			continue
		}
		stats, statsErr := program.Stats()
		if statsErr != nil {
			return 0, errors.Join(err, statsErr)
		}
		attached += stats.RecursionMisses
	}
	return attached, err
}

func checkPlaces(e *events.Probe, types *btf.Cache) error {
	if !e.NeedsCookies() && !e.BySyscall() {
		return nil
	}
	has, err := HasCookies(types)
	if err != nil || has {
		return err
	}
	e.AttachEach()
	if e.NeedsCookies() {
		return fmt.Errorf("%s: the fields are in %d different places, which needs Linux 5.15: choose fewer probes", e.Event, len(e.Places))
	}
	return nil
}

// HasCookies reports whether programs can know at which point they run.
func HasCookies(types *btf.Cache) (bool, error) {
	kernel, err := probe.NewKernel(types)
	if err != nil {
		return false, err
	}
	return kernel.HasHelper("bpf_get_attach_cookie")
}

// Resolve finds an event. On kernels where programs cannot know at which point they run, the
// points of an event are not distinguished, and its hits have no fields to show.
func Resolve(r *events.Resolver, e events.Event, q events.Query) (*events.Probe, error) {
	p, err := r.Resolve(e, q)
	if err != nil || !p.ByPoint || !p.NeedsCookies() {
		return p, err
	}
	has, err := HasCookies(r.Types)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if has {
		return p, nil
	}
	if err := p.Close(); err != nil {
		return nil, err
	}
	q.Shown, q.ByPoint, q.PacedByPoint = false, false, false
	return r.Resolve(e, q)
}

// Prepare makes the maps of bpf/field.h large enough for [Fill], and adds the variables there
// that depend on the events, the first of which takes the stacks. [Programs.Adapt] comes before.
func Prepare(spec *ebpf.CollectionSpec, variables map[string]any, all ...*events.Probe) {
	fields, calls, byPlace := 0, 0, false
	for i, e := range all {
		fields += len(e.Layout())
		calls += len(e.Syscalls(i))
		byPlace = byPlace || e.NeedsCookies()
	}
	spec.Maps[bpf.CountMapFields].MaxEntries = uint32(max(fields, 1))
	spec.Maps[bpf.CountMapSyscalls].MaxEntries = uint32(max(calls, 1))
	variables[bpf.CountVarByPlace] = byPlace || calls > 0
	variables[bpf.CountVarBySyscall] = calls > 0
	variables[bpf.CountVarAtEntry] = len(all) > 0 && all[0].AtEntry()
}

// Fill writes the fields of the events' places, one event after the other, the system calls
// and the filter to the maps of bpf/field.h.
func Fill(maps map[string]*ebpf.Map, filter events.Filter, all ...*events.Probe) error {
	next := uint32(0)
	for i, e := range all {
		for call, cookie := range e.Syscalls(i) {
			if err := maps[bpf.CountMapSyscalls].Put(call, cookie); err != nil {
				return fmt.Errorf("write the system calls of %s: %w", e.Event, err)
			}
		}
		for _, f := range e.Layout() {
			if err := maps[bpf.CountMapFields].Put(next, f); err != nil {
				return fmt.Errorf("write the fields of %s: %w", e.Event, err)
			}
			next++
		}
	}
	for i, t := range filter.Terms() {
		if err := maps[bpf.CountMapFilter].Put(uint32(i), t); err != nil {
			return fmt.Errorf("write the filter: %w", err)
		}
	}
	return nil
}

// MaxEvents is the maximum number of events: each has its own maps and values.
const MaxEvents = 16

// ParseEvents parses the names of events that are measured together; see [events.ParseGiven].
func ParseEvents(names []string) (all []events.Event, err error) {
	if len(names) == 0 || len(names) > MaxEvents {
		return nil, usage.Errorf("choose 1 to %d events with %s", MaxEvents, usage.Event)
	}
	for _, name := range names {
		e, err := events.ParseGiven(name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(all, e) {
			return nil, usage.Errorf("event %s is given twice", e)
		}
		all = append(all, e)
	}
	return all, nil
}

// Places limits the places of events.
type Places struct {
	// MaxProbes is the maximum number of places of an event. 0 means [events.DefaultMaxProbes].
	MaxProbes int
	// Uretprobes is as in [events.Resolver].
	Uretprobes bool
}

// Resolver returns a resolver for a target, in whose processes it looks up files.
func Resolver(t target.Target, places Places) *events.Resolver {
	r := &events.Resolver{
		MaxProbes: cmp.Or(places.MaxProbes, events.DefaultMaxProbes), Uretprobes: places.Uretprobes, Types: btf.NewCache(),
	}
	r.PIDs = t.PIDs
	if t.Scope == target.Threads {
		r.PIDs = target.ProcessesOf(t.TIDs)
	}
	return r
}

// Notes returns lines for the summary about an event's places: their number if there are
// several, and the matches of a pattern that are left out. If e counts returns, call can be the
// probe of the calls of the same functions, whose notes are not repeated. Otherwise it is nil.
func Notes(e, call *events.Probe) (lines []string) {
	if call == nil {
		call = new(events.Probe)
	}
	if len(e.Points) > 1 && len(e.Points) != len(call.Points) {
		lines = append(lines, fmt.Sprintf("%s: %d places", plain.Terminal(e.Event.String()), len(e.Points)))
	}
	for _, reason := range slices.Sorted(maps.Keys(e.LeftOut)) {
		out, known := e.LeftOut[reason], call.LeftOut[reason]
		if out.Count == known.Count && slices.Equal(out.Names, known.Names) {
			continue
		}
		lines = append(lines, plain.Terminal(fmt.Sprintf("%s: left out %s: %s", e.Event, out, reason)))
	}
	return lines
}
