package hits

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// Config configures [Subject].
type Config struct {
	// Events are the names of the events, see [events.Parse].
	Events []string
	// Filter is a condition for hits that count, see [events.ParseFilter]. Weight is the
	// field to sum, "" for none. All events need the fields of both.
	Filter, Weight string
	// Every and MaxRate are as in [Options]. MaxRate 0 means [attach.DefaultMaxRate].
	Every, MaxRate uint64
	attach.Places
	// Recorded is set to record each hit in formats with times, as a marker with its fields.
	Recorded bool
}

// Subject is the hits of events. It implements [source.Subject]. Each event is a source.
type Subject struct {
	Config
	common  source.Common
	events  []events.Event
	query   events.Query
	probes  []*events.Probe
	sources []*Source
	first   uint8 // index of the first of sources in the run
}

// Names returns the names of events in full, such as "tracepoint:sched:sched_switch" for
// "sched:sched_switch".
func Names(given []string) (names []string, err error) {
	parsed, err := attach.ParseEvents(given)
	for _, e := range parsed {
		names = append(names, e.String())
	}
	return names, err
}

// New returns the subject for c.
func New(c Config) *Subject { return &Subject{Config: c} }

// Command implements [source.Subject].
func (*Subject) Command() doctor.Command { return doctor.Count }

// Complete implements [source.Subject].
func (m *Subject) Complete(c source.Common) (err error) {
	m.common = c
	m.MaxRate = cmp.Or(m.MaxRate, attach.DefaultMaxRate)
	if len(c.Target.CPUs) > 0 {
		return usage.Errorf("events are counted on all CPUs: separate the CPUs with %s", usage.PerCPU)
	}
	if m.events, err = attach.ParseEvents(m.Events); err != nil {
		return err
	}
	m.query.Weight, m.query.Shown = m.Weight, m.Recorded
	if m.query.Filter, err = events.ParseFilter(m.Filter); err != nil {
		return usage.Errorf("%v", err)
	}
	return nil
}

// Choose finds the events.
func (m *Subject) Choose() (err error) {
	r := attach.Resolver(*m.common.Target, m.Places)
	defer func() { err = errors.Join(err, r.Close()) }()
	for _, e := range m.events {
		q := m.query
		q.ByPoint, q.PacedByPoint = !e.Kind.InStack(m.common.UserOnly), m.Every > 1
		p, err := attach.Resolve(r, e, q)
		if err != nil {
			return err
		}
		m.probes = append(m.probes, p)
	}
	return nil
}

// Times implements [source.Subject].
func (m *Subject) Times() (source.Times, bool) { return source.Times{}, m.Recorded }

// Load implements [source.Subject].
func (m *Subject) Load(common probe.Options) (all []source.Source, err error) {
	m.first = common.Source
	m.sources, all, err = attach.LoadEach(common, m.probes, func(o probe.Options, p *events.Probe) (*Source, error) {
		return Load(Options{Options: o, Probe: p, Query: m.query, Every: m.Every, MaxRate: m.MaxRate})
	})
	return all, err
}

// Indexes of this source's [stacks.Values].
const (
	Hits   = iota
	Weight // sum of a field
)

// Values returns the hits of all events, the sum of the field if there is one, and, if
// there are several events, the hits and the sum of each. The events with the most hits that
// a pattern matches follow.
func (m *Subject) Values(store *stacks.Store) []source.Value {
	values := attach.Values(m.events, m.types()...)
	if store != nil {
		values = append(values, m.matches().Values(store)...)
	}
	return values
}

// matches tells the events of samples apart.
func (m *Subject) matches() attach.Matches {
	return attach.Matches{Probes: m.probes, First: m.first, Types: m.types(), Shown: m.Shown()}
}

// types are the types of an event's values.
func (m *Subject) types() []profile.ValueType {
	types := []profile.ValueType{{Type: "hits", Unit: "count"}}
	if m.Weight != "" {
		types = append(types, profile.ValueType{Type: events.FieldName(m.Weight), Unit: "count"})
	}
	return types
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
	return m.matches().Place(p, s, m.common.UserOnly)
}

// Describe implements [source.Subject].
func (m *Subject) Describe(meta *profile.Meta) {
	var names []string
	for _, e := range m.events {
		names = append(names, e.String())
	}
	meta.Event = strings.Join(names, ", ")
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
	if m.Every > 1 {
		why += fmt.Sprintf(", or there were too few: one of %d on each CPU counts", m.Every)
	}
	if slices.ContainsFunc(m.events, func(e events.Event) bool { return !e.Kind.InKernel() }) {
		why += "; uprobes count in this very file: programs may use another copy, such as another version of a library"
	}
	if slices.ContainsFunc(m.probes, func(p *events.Probe) bool { return p.Event.Kind == events.Kretprobe || p.ReplacesReturns() }) {
		why += "; returns of calls that were already in progress do not count"
	}
	return why
}

// Notes returns the places that are left out, and how to read the numbers.
func (m *Subject) Notes(store *stacks.Store) []string {
	lines := m.matches().Table(store)
	for _, p := range m.probes {
		lines = append(lines, attach.Notes(p, nil)...)
	}
	if m.Every > 1 {
		lines = append(lines, fmt.Sprintf("one of %d hits was counted, for all of them", m.Every))
	}
	lines = append(lines, attach.Unreached(m.sources)...)
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
