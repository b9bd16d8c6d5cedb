package latency

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/doctor"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// Config configures [Subject].
type Config struct {
	// Events are the names of the events that begin intervals, see [events.Parse].
	Events []string
	// Until is the name of the event that ends intervals. "" means the return of a
	// function, or the event whose name is the counterpart, such as sys_exit_read of
	// sys_enter_read.
	Until string
	// Key is the field that is equal in both events, or FIELD=FIELD if its names differ.
	// "" and "tid" mean that the same thread has both.
	Key string
	// Filter is a condition for the first event, see [events.ParseFilter].
	Filter string
	// Show are fields of the first event to keep, see [events.ParseShow] and [Source.Slowest].
	Show string
	// MaxRate is as in [Options]; 0 means [attach.DefaultMaxRate].
	MaxRate uint64
	attach.Places
	// PendingEntries limits the intervals in progress; 0 means the default.
	PendingEntries uint32
	// Recorded, if not "", records each interval of the only event as a marker in formats with times. It is the
	// name of the value of the markers, in nanoseconds.
	Recorded string
}

// Subject is the time between events. It implements [source.Subject]. Each event that
// begins intervals is a source.
type Subject struct {
	Config
	common  source.Common
	filter  events.Filter
	events  []events.Event
	pairs   []foundPair
	sources []*Source
	first   uint8 // index of the first of sources in the run
}

// foundPair is a pair with the places of its events, which [Subject.Choose] sets.
type foundPair struct {
	Pair
	begin, end *events.Probe
}

// New returns the subject for c.
func New(c Config) *Subject { return &Subject{Config: c} }

// Command implements [source.Subject].
func (*Subject) Command() doctor.Command { return doctor.Latency }

// Complete implements [source.Subject].
func (m *Subject) Complete(c source.Common) (err error) {
	m.common = c
	m.MaxRate = cmp.Or(m.MaxRate, attach.DefaultMaxRate)
	if len(c.Target.CPUs) > 0 {
		return usage.Errorf("%s does not work with latency: an interval can begin and end on two CPUs", usage.CPUs)
	}
	if m.events, err = attach.ParseEvents(m.Events); err != nil {
		return err
	}
	if m.Until != "" && len(m.Events) > 1 {
		return usage.Errorf("%s is the end of one event: choose one with %s", usage.Until, usage.Event)
	}
	show, err := events.ParseShow(m.Show)
	if err != nil {
		return usage.Errorf("%s %v", usage.Show, err)
	}
	for _, e := range m.events {
		p, err := pairOf(e, m.Until, m.Key)
		if err != nil {
			return err
		}
		p.Show = show
		m.pairs = append(m.pairs, foundPair{Pair: p})
	}
	if m.filter, err = events.ParseFilter(m.Filter); err != nil {
		return usage.Errorf("%v", err)
	}
	return probe.CompleteSize(usage.PendingEntries, &m.PendingEntries, DefaultPendingEntries, 1, probe.MaxEntries)
}

// Choose finds the events.
func (m *Subject) Choose() (err error) {
	r := attach.Resolver(*m.common.Target, m.Places)
	defer func() { err = errors.Join(err, r.Close()) }()
	for i, p := range m.pairs {
		if m.pairs[i].begin, m.pairs[i].end, err = p.Find(r, m.filter, m.common.UserOnly); err != nil {
			return err
		}
		if m.pairs[i].begin.Go {
			m.pairs[i].Match = GoCall
		}
	}
	return nil
}

// Times implements [source.Subject].
func (m *Subject) Times() (source.Times, bool) { return source.Times{}, m.Recorded != "" }

// Load implements [source.Subject].
func (m *Subject) Load(common probe.Options) (all []source.Source, err error) {
	_, all, err = m.load(common, nil)
	if m.Recorded != "" {
		for i, s := range m.sources {
			all[i] = &recordedSource{Source: s, name: m.pairs[i].name(), value: m.Recorded}
		}
	}
	return all, err
}

// LoadFollowing loads the source of the only event, which follows what threads do in intervals.
func (m *Subject) LoadFollowing(common probe.Options, f Follow) (*Source, error) {
	for _, p := range m.pairs {
		if err := p.checkFollowed(); err != nil {
			return nil, err
		}
	}
	own, _, err := m.load(common, &f)
	if err != nil {
		return nil, err
	}
	return own[0], nil
}

// load loads the sources.
func (m *Subject) load(common probe.Options, f *Follow) (own []*Source, all []source.Source, err error) {
	m.first = common.Source
	m.sources, all, err = attach.LoadEach(common, m.pairs, func(o probe.Options, p foundPair) (*Source, error) {
		if p.begin == nil {
			p.Match = KernelCall // for the doctor, which only loads the programs
		}
		return Load(Options{
			Options: o, Begin: p.begin, End: p.end, Match: p.Match, Filter: m.filter,
			MaxRate: m.MaxRate, PendingEntries: m.PendingEntries, Follow: f,
		})
	})
	return m.sources, all, err
}

// Indexes of this source's [stacks.Values].
const (
	Intervals = iota
	Time      // ns
)

// Values implements [source.Subject].
func (m *Subject) Values(store *stacks.Store) []source.Value {
	values := attach.Values(m.events, types...)
	if store != nil {
		values = append(values, m.matches().Values(store)...)
	}
	return values
}

// types are the types of an event's values.
var types = []profile.ValueType{{Type: "intervals", Unit: "count"}, {Type: "latency", Unit: "nanoseconds"}}

// matches tells apart the events at which intervals began.
func (m *Subject) matches() attach.Matches {
	var begins []*events.Probe
	for _, p := range m.pairs {
		begins = append(begins, p.begin)
	}
	return attach.Matches{Probes: begins, First: m.first, Types: types, Shown: Time}
}

// Shown returns the time.
func (*Subject) Shown() int { return Time }

// Place implements [source.Subject].
func (m *Subject) Place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	return m.matches().Place(p, s, m.common.UserOnly)
}

// Describe implements [source.Subject].
func (m *Subject) Describe(meta *profile.Meta) {
	var names []string
	for _, p := range m.pairs {
		names = append(names, p.name())
	}
	meta.Event = strings.Join(names, ", ")
}

// name returns the name of the pair for people.
func (p Pair) name() string {
	switch p.Match {
	case UserCall, KernelCall, GoCall:
		return p.Begin.String()
	}
	return p.Begin.String() + " to " + p.End.String()
}

// WhyNothing implements [source.Subject].
func (m *Subject) WhyNothing() string {
	why := "no interval of the target began and ended"
	if m.Filter != "" {
		why += ", or none passed the filter"
	}
	if m.Until != "" && (m.Key == "" || m.Key == "tid") {
		why += fmt.Sprintf("; the same thread must have both events: otherwise choose a field with %s", usage.Key)
	}
	return why
}

// Notes returns the places that are left out, the distribution of the times of each pair, and a table of the
// events at which intervals began.
func (m *Subject) Notes(store *stacks.Store) []string {
	var lines []string
	for _, p := range m.pairs {
		lines = append(lines, attach.Notes(p.begin, nil)...)
		switch p.Match {
		case GoCall: // the returns of the same functions, which have no uretprobes
		case UserCall, KernelCall:
			lines = append(lines, attach.Notes(p.end, p.begin)...)
		default:
			lines = append(lines, attach.Notes(p.end, nil)...)
		}
	}
	lines = append(lines, attach.Unreached(m.sources)...)
	for i, s := range m.sources {
		unfinished, err := s.Unfinished()
		ambiguous, ambiguousErr := s.Ambiguous()
		times, timesErr := s.Distribution()
		if err := errors.Join(err, ambiguousErr, timesErr); err != nil {
			return append(lines, plain.Error(err))
		}
		if unfinished > 0 {
			lines = append(lines, plain.Terminal(fmt.Sprintf("%s: %s began but did not end: not in the result", m.pairs[i].name(), plain.Count(unfinished, "interval"))))
		}
		if ambiguous > 0 {
			lines = append(lines, plain.Terminal(fmt.Sprintf("%s: %s in doubt: calls of coroutines whose stacks the program copies may have been taken for one another", m.pairs[i].name(), plain.Count(ambiguous, "interval"))))
		}
		if drawn := times.Lines(); len(drawn) > 0 {
			lines = append(lines, plain.Terminal(m.pairs[i].name()))
			lines = append(lines, drawn...)
		}
	}
	if table := m.matches().Table(store); len(table) > 0 {
		lines = append(append(lines, ""), table...)
	}
	return lines
}
