package hits

import (
	"cmp"
	"slices"

	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/profile/encode/text"
)

// maxRows is the maximum number of rows of the table of events.
const maxRows = 30

// matched is an event that a pattern matches, and that was hit.
type matched struct {
	index  int // of the pattern
	event  string
	points map[uint64]bool
	sum    stacks.Values
}

// probeOf returns the probe of a source in the run, and its index.
func (m *Subject) probeOf(from uint8) (p *events.Probe, index int) {
	if index = int(from) - int(m.first); index < 0 || index >= len(m.probes) {
		return nil, 0
	}
	return m.probes[index], index
}

// eventOf returns the event of a sample, or "" if there is only one.
func (m *Subject) eventOf(s stacks.Sample) string {
	p, _ := m.probeOf(s.Source)
	if p == nil || len(m.probes) < 2 && !p.Distinguishes() {
		return ""
	}
	return p.EventOf(s.Detail).String()
}

// matched returns the events of samples, those with the most hits first.
func (m *Subject) matched(store *stacks.Store) []matched {
	type key struct {
		index int
		event events.Event
	}
	found := map[key]*matched{}
	for s, counted := range store.Samples {
		p, index := m.probeOf(s.Source)
		if p == nil {
			continue
		}
		k := key{index, p.EventOf(s.Detail)}
		if found[k] == nil {
			found[k] = &matched{index: index, event: k.event.String(), points: map[uint64]bool{}}
		}
		found[k].points[s.Detail] = true
		found[k].sum.Add(counted)
	}
	var all []matched
	for _, e := range found {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b matched) int {
		return cmp.Or(cmp.Compare(b.sum[Hits], a.sum[Hits]), cmp.Compare(a.event, b.event), cmp.Compare(a.index, b.index))
	})
	return all
}

// matchedValues returns the values of the events with the most hits that patterns match: as
// many as events can be given, since formats have all values of each stack.
func (m *Subject) matchedValues(store *stacks.Store) (values []source.Value) {
	all := slices.DeleteFunc(m.matched(store), func(e matched) bool { return !m.probes[e.index].Distinguishes() })
	for _, e := range all[:min(len(all), attach.MaxEvents)] {
		for i, t := range m.types() {
			v := source.Value{ValueType: t, Of: make([][]int, e.index+1), Details: e.points}
			v.Type = e.event + " " + v.Type
			v.Of[e.index] = []int{i}
			values = append(values, v)
		}
	}
	return values
}

// table returns the lines of a table of the events of samples, followed by an empty line, or
// none if there is only one event.
func (m *Subject) table(store *stacks.Store) []string {
	if store == nil || len(m.probes) < 2 && !slices.ContainsFunc(m.probes, (*events.Probe).Distinguishes) {
		return nil
	}
	types := m.types()
	var groups []text.Group
	for _, e := range m.matched(store) {
		g := text.Group{Name: e.event}
		for i := range types {
			g.Values = append(g.Values, int64(e.sum[i]))
		}
		groups = append(groups, g)
	}
	if len(groups) == 0 {
		return nil
	}
	return append(text.Groups(types, groups, text.GroupOptions{By: "event", Value: m.Shown(), Rows: maxRows}), "")
}
