package hits

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fulgur/internal/capture/events"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"

	"github.com/cilium/ebpf/btf"
)

// Config configures [Subject].
type Config struct {
	// Events are the names of the events, see [events.Parse].
	Events []string
	// Filter is a condition for hits that count, see [events.ParseFilter]. Weight is the
	// field to sum, "" for none. All events need the fields of both.
	Filter, Weight string
	// Every and MaxRate are as in [Options]. MaxRate 0 means [DefaultMaxRate].
	Every, MaxRate uint64
	// MaxProbes is the maximum number of places of an event. 0 means
	// [events.DefaultMaxProbes].
	MaxProbes int
}

// maxEvents is the maximum number of events: each has its own maps and values.
const maxEvents = 16

// Subject is the hits of events. It implements [source.Subject]. Each event is a source.
type Subject struct {
	Config
	common  source.Common
	events  []events.Event
	query   events.Query
	probes  []*events.Probe
	sources []*Source
}

// New returns the subject for c.
func New(c Config) *Subject { return &Subject{Config: c} }

// Command implements [source.Subject].
func (*Subject) Command() doctor.Command { return doctor.Count }

// Complete implements [source.Subject].
func (m *Subject) Complete(c source.Common) (err error) {
	m.common = c
	if m.MaxRate == 0 {
		m.MaxRate = DefaultMaxRate
	}
	if m.MaxProbes == 0 {
		m.MaxProbes = events.DefaultMaxProbes
	}
	if len(c.Target.CPUs) > 0 {
		return usage.Errorf("events are counted on all CPUs: separate the CPUs with %s", usage.PerCPU)
	}
	if len(m.Events) == 0 || len(m.Events) > maxEvents {
		return usage.Errorf("choose 1 to %d events with %s", maxEvents, usage.Event)
	}
	for _, name := range m.Events {
		e, err := events.Parse(name)
		if err != nil {
			return usage.Errorf("%v", err)
		}
		if slices.Contains(m.events, e) {
			return usage.Errorf("event %s is given twice", e)
		}
		m.events = append(m.events, e)
	}
	m.query.Weight = m.Weight
	if m.query.Filter, err = events.ParseFilter(m.Filter); err != nil {
		return usage.Errorf("%v", err)
	}
	return nil
}

// Choose finds the events.
func (m *Subject) Choose() (err error) {
	r := events.Resolver{MaxProbes: m.MaxProbes, Types: btf.NewCache()}
	defer func() { err = errors.Join(err, r.Close()) }()
	pids := m.common.Target.PIDs
	if m.common.Target.Scope == target.Threads {
		pids = target.ProcessesOf(m.common.Target.TIDs)
	}
	for _, pid := range pids {
		r.Roots = append(r.Roots, procfs.Path(pid, "root"))
	}
	for _, e := range m.events {
		p, err := r.Resolve(e, m.query)
		if err != nil {
			return err
		}
		m.probes = append(m.probes, p)
	}
	return nil
}

// Timeline returns false, because recordings do not support hits.
func (*Subject) Timeline() (source.Timeline, bool) { return source.Timeline{}, false }

// Load implements [source.Subject].
func (m *Subject) Load(common probe.Options) (all []source.Source, err error) {
	load := func(p *events.Probe) error {
		s, err := Load(Options{
			Options:    common,
			Probe:      p,
			Query:      m.query,
			Every:      m.Every,
			MaxRate:    m.MaxRate,
			SkipKernel: m.common.UserOnly,
			Snapshots:  common.Tables != nil,
		})
		if err != nil {
			return err
		}
		m.sources, all = append(m.sources, s), append(all, s)
		return nil
	}
	if len(m.probes) == 0 {
		return all, load(nil)
	}
	for i, p := range m.probes {
		common.Source = uint8(i)
		if err := load(p); err != nil {
			return all, err
		}
	}
	return all, nil
}

// Indexes of this source's [stacks.Values].
const (
	Hits   = iota
	Weight // sum of a field
)

// Values returns the hits of all events, the sum of the field if there is one, and, if
// there are several events, the hits and the sum of each.
func (m *Subject) Values() []source.Value {
	shown := []int{Hits}
	types := map[int]profile.ValueType{Hits: {Type: "hits", Unit: "count"}}
	if m.Weight != "" {
		shown = append(shown, Weight)
		types[Weight] = profile.ValueType{Type: events.FieldName(m.Weight), Unit: "count"}
	}
	var values []source.Value
	for _, i := range shown {
		all := source.Value{ValueType: types[i]}
		for range max(len(m.events), 1) {
			all.Of = append(all.Of, []int{i})
		}
		values = append(values, all)
	}
	if len(m.events) < 2 {
		return values
	}
	for at, e := range m.events {
		for _, i := range shown {
			own := source.Value{ValueType: types[i], Of: make([][]int, at+1)}
			own.Type = e.String() + " " + own.Type
			own.Of[at] = []int{i}
			values = append(values, own)
		}
	}
	return values
}

// Shown returns the sum of the field if there is one.
func (m *Subject) Shown() int {
	if m.Weight != "" {
		return Weight
	}
	return Hits
}

// Place adds the stack to the profile. If there are several events, the event is on top.
func (m *Subject) Place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	stack := p.PlaceFrom(p.WithoutProbe(p.Store.Traces[s.Trace].Leaf), m.common.UserOnly)
	if len(m.events) < 2 {
		return stack
	}
	return p.Mark(stack, "["+m.events[s.Source].String()+"]")
}

// Describe implements [source.Subject].
func (m *Subject) Describe(meta *profile.Meta) {
	var names []string
	for _, e := range m.events {
		names = append(names, e.String())
	}
	meta.Event = strings.Join(names, ", ")
	meta.Value = m.Values()[m.Shown()].Type // not an event's own
	if m.Every > 1 {
		meta.Period = m.Every
	}
}

// WhyNothing implements [source.Subject].
func (m *Subject) WhyNothing() string {
	why := "the target did not hit the event"
	if m.common.Target.Scope == target.System {
		why = "nothing hit the event"
	}
	if m.Filter != "" {
		why += ", or no hit passed the filter"
	}
	if slices.ContainsFunc(m.events, func(e events.Event) bool { return !e.Kind.InKernel() }) {
		why += "; uprobes count in this very file: programs may use another copy, such as another version of a library"
	}
	return why
}

// Notes returns what is left out and what the numbers mean.
func (m *Subject) Notes(*stacks.Store) []string {
	var lines []string
	for _, p := range m.probes {
		if len(p.Points) > 1 {
			lines = append(lines, fmt.Sprintf("%s: %d places", plain.Terminal(p.Event.String()), len(p.Points)))
		}
		for reason, out := range p.LeftOut {
			shown := strings.Join(out.Names, ", ")
			if more := out.Count - len(out.Names); more > 0 {
				shown += fmt.Sprintf(" and %d more", more)
			}
			lines = append(lines, plain.Terminal(fmt.Sprintf("%s: left out %s: %s", p.Event, shown, reason)))
		}
	}
	if m.Every > 1 {
		lines = append(lines, fmt.Sprintf("one of %d hits was counted, for all of them", m.Every))
	}
	var negative uint64
	for _, s := range m.sources {
		n, err := s.Negative()
		if err == nil {
			negative += n
		}
	}
	if negative > 0 {
		lines = append(lines, fmt.Sprintf("%s had a negative %s, which counts as 0", plain.Count(negative, "hit"), events.FieldName(m.Weight)))
	}
	return lines
}
