package attach

import (
	"cmp"
	"slices"

	"fulgur/internal/capture/events"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/text"
)

// maxRows is the maximum number of rows of the table of events.
const maxRows = 30

// Matches tells apart the events of samples: the given ones, and those that a pattern matches.
// The detail of a sample is the number of its attach point.
type Matches struct {
	// Probes are the events, each of which is a source, and First is the index of the first
	// source in the run.
	Probes []*events.Probe
	First  uint8
	// Types are the types of an event's values, and Shown is the index of the one to sort by.
	Types []profile.ValueType
	Shown int
}

// matched is an event that a pattern matches, and that was hit.
type matched struct {
	index  int // of the pattern
	event  string
	points map[uint64]bool
	sum    stacks.Values
}

// probeOf returns the probe of a source in the run, and its index.
func (m Matches) probeOf(from uint8) (p *events.Probe, index int) {
	if index = int(from) - int(m.First); index < 0 || index >= len(m.Probes) {
		return nil, 0
	}
	return m.Probes[index], index
}

// EventOf returns the event of a sample, or "" if there is only one.
func (m Matches) EventOf(s stacks.Sample) string {
	p, _ := m.probeOf(s.Source)
	if p == nil || len(m.Probes) < 2 && !p.Distinguishes() {
		return ""
	}
	return p.EventOf(s.Detail).String()
}

// Place adds the stack of a sample to the profile. If there are several events, the event is on
// top.
func (m Matches) Place(p *naming.StackBuilder, s stacks.Sample, userOnly bool) profile.StackID {
	event := m.EventOf(s)
	if probe, _ := m.probeOf(s.Source); probe == nil || probe.Event.Kind != events.Uprobe || !probe.AtEntry() {
		return Place(p, s, event, userOnly)
	}
	return mark(p, p.PlaceEntry(p.Store.Traces[s.Trace].Leaf), event)
}

// owners returns the index of the probe that stands for each event: of several that count it,
// the one for which it was given, or else the first.
func (m Matches) owners() map[events.Event]int {
	owners := map[events.Event]int{}
	for i, p := range m.Probes {
		if p != nil {
			owners[p.Event] = i
		}
	}
	for i, p := range m.Probes {
		if p == nil {
			continue
		}
		for point := range p.Points {
			e := p.EventOf(uint64(point))
			if _, ok := owners[e]; !ok {
				owners[e] = i
			}
		}
	}
	return owners
}

// matched returns the events of samples, those with the most hits first.
func (m Matches) matched(store *stacks.Store) []matched {
	found, owners := map[events.Event]*matched{}, m.owners()
	for s, counted := range store.Samples {
		p, index := m.probeOf(s.Source)
		if p == nil {
			continue
		}
		e := p.EventOf(s.Detail)
		if owners[e] != index {
			continue // counted twice
		}
		if found[e] == nil {
			found[e] = &matched{index: index, event: e.String(), points: map[uint64]bool{}}
		}
		found[e].points[s.Detail] = true
		found[e].sum.Add(counted)
	}
	var all []matched
	for _, e := range found {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b matched) int {
		return cmp.Or(cmp.Compare(b.sum.Samples(), a.sum.Samples()), cmp.Compare(a.event, b.event))
	})
	return all
}

// Values returns the values of the events with the most hits that patterns match: as
// many as events can be given, since formats have all values of each stack.
func (m Matches) Values(store *stacks.Store) (values []source.Value) {
	all := slices.DeleteFunc(m.matched(store), func(e matched) bool { return !m.Probes[e.index].Distinguishes() })
	for _, e := range all[:min(len(all), MaxEvents)] {
		for i, t := range m.Types {
			v := source.Value{ValueType: t, Of: make([][]int, e.index+1), Details: e.points}
			v.Type = e.event + " " + v.Type
			v.Of[e.index] = []int{i}
			values = append(values, v)
		}
	}
	return values
}

// Table returns the lines of a table of the events of samples, each once, followed by an empty
// line, or none if there is only one event.
func (m Matches) Table(store *stacks.Store) []string {
	distinguishes := func(p *events.Probe) bool { return p != nil && p.Distinguishes() }
	if store == nil || len(m.Probes) < 2 && !slices.ContainsFunc(m.Probes, distinguishes) {
		return nil
	}
	var groups []text.Group
	for _, e := range m.matched(store) {
		g := text.Group{Name: e.event}
		for i := range m.Types {
			g.Values = append(g.Values, int64(e.sum[i]))
		}
		groups = append(groups, g)
	}
	if len(groups) == 0 {
		return nil
	}
	return append(text.Groups(m.Types, groups, text.GroupOptions{By: "event", Value: m.Shown, Rows: maxRows}), "")
}
