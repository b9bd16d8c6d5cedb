package hits

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
)

// patterns returns a subject of a pattern with two places of one name and one of another,
// and of another event.
func patterns(t *testing.T) *Subject {
	m := New(Config{Events: []string{"usdt:/a:*:*", "kprobe:b*"}, Weight: "arg0"})
	if err := m.Complete(source.Common{Target: new(target.Target)}); err != nil {
		t.Fatal(err)
	}
	m.probes = []*events.Probe{
		{Event: m.events[0], ByPoint: true, Points: []events.Point{{Name: "p:x"}, {Name: "p:y"}, {Name: "p:x"}}},
		{Event: m.events[1], Points: []events.Point{{Name: "b1"}, {Name: "b2"}}},
	}
	return m
}

// samples returns a store with a sample of each place of the first event, and one of the
// second.
func samples() *stacks.Store {
	return &stacks.Store{Samples: map[stacks.Sample]stacks.Values{
		{Source: 0, Detail: 0}: {Hits: 1, Weight: 10},
		{Source: 0, Detail: 1}: {Hits: 4, Weight: 40},
		{Source: 0, Detail: 2}: {Hits: 2, Weight: 20},
		{Source: 1}:            {Hits: 8, Weight: 80},
	}}
}

// Each event that a pattern matches has values, the one with the most hits first.
func TestMatchedValues(t *testing.T) {
	m, store := patterns(t), samples()
	values := m.Values(store)
	if without := m.Values(nil); len(without) != len(values)-4 {
		t.Errorf("got %d values without samples, want 4 less than %d", len(without), len(values))
	}
	got := map[string]int64{}
	var names []string
	for _, v := range values {
		names = append(names, v.Type)
		for s, counted := range store.Samples {
			got[v.Type] += v.Sum(s.Source, s.Detail, counted)
		}
	}
	want := []string{"usdt:/a:p:y hits", "usdt:/a:p:y arg0", "usdt:/a:p:x hits", "usdt:/a:p:x arg0"}
	if !slices.Equal(names[len(names)-4:], want) {
		t.Errorf("got values %q, want %q at the end", names, want)
	}
	for name, want := range map[string]int64{
		"hits": 15, "arg0": 150, "usdt:/a:*:* hits": 7, "kprobe:b* hits": 8,
		"usdt:/a:p:y hits": 4, "usdt:/a:p:y arg0": 40, "usdt:/a:p:x hits": 3, "usdt:/a:p:x arg0": 30,
	} {
		if got[name] != want {
			t.Errorf("%s: got %d, want %d", name, got[name], want)
		}
	}
}

// Only so many events have values: formats have all values of each stack.
func TestManyMatches(t *testing.T) {
	m := patterns(t)
	m.probes[0].Points = nil
	store := &stacks.Store{Samples: map[stacks.Sample]stacks.Values{}}
	for i := range 2 * attach.MaxEvents {
		m.probes[0].Points = append(m.probes[0].Points, events.Point{Name: fmt.Sprintf("p:x%d", i)})
		store.Samples[stacks.Sample{Detail: uint64(i)}] = stacks.Values{Hits: uint64(i + 1)}
	}
	own := m.Values(store)[len(m.Values(nil)):]
	if want := attach.MaxEvents * len(m.types()); len(own) != want || own[0].Type != "usdt:/a:p:x31 hits" {
		t.Errorf("got %d values, the first %q, want %d and that of the event with the most hits", len(own), own[0].Type, want)
	}
}

// The summary has a table of the events, with the values of each.
func TestTableOfEvents(t *testing.T) {
	m := patterns(t)
	want := "hits  arg0  event\n   8    80  kprobe:b*\n   4    40  usdt:/a:p:y\n   3    30  usdt:/a:p:x\n"
	if got := strings.Join(m.matches().Table(samples()), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	m.probes = m.probes[1:]
	if got := m.matches().Table(samples()); got != nil {
		t.Errorf("got %q for one event, want none", got)
	}
	if got := m.matches().EventOf(stacks.Sample{Source: 0}); got != "" {
		t.Errorf("got event %q, want none", got)
	}
}

// In a recording, other sources can come first.
func TestEventOfRecording(t *testing.T) {
	m := patterns(t)
	m.first = 3
	for of, want := range map[stacks.Sample]string{
		{Source: 3, Detail: 1}: "usdt:/a:p:y", {Source: 3, Detail: 9}: "usdt:/a:*:*", {Source: 4}: "kprobe:b*", {Source: 0}: "", {Source: 5}: "",
	} {
		if got := m.matches().EventOf(of); got != want {
			t.Errorf("%+v: got event %q, want %q", of, got, want)
		}
	}
	if got := m.Values(nil)[m.Shown()].Type; got != "arg0" {
		t.Errorf("got value %q, want that of all events", got)
	}
}

// An event that several of the given events match, and that each counts, has one row and one
// value of a name.
func TestOverlap(t *testing.T) {
	m := New(Config{Events: []string{"syscalls:sys_enter_write", "syscalls:sys_enter_w*", "syscalls:sys_*_write"}})
	if err := m.Complete(source.Common{Target: new(target.Target)}); err != nil {
		t.Fatal(err)
	}
	const group = "syscalls:"
	for i, names := range [][]string{{"sys_enter_write"}, {"sys_enter_write", "sys_enter_writev"}, {"sys_enter_write", "sys_exit_write"}} {
		p := &events.Probe{Event: m.events[i], ByPoint: true}
		for _, name := range names {
			p.Points = append(p.Points, events.Point{Name: group + name})
		}
		m.probes = append(m.probes, p)
	}
	store := &stacks.Store{Samples: map[stacks.Sample]stacks.Values{
		{Source: 0}: {Hits: 5}, {Source: 1}: {Hits: 6}, {Source: 1, Detail: 1}: {Hits: 2}, {Source: 2}: {Hits: 5}, {Source: 2, Detail: 1}: {Hits: 3},
	}}
	var got []string
	for _, v := range m.Values(store) {
		sum := int64(0)
		for s, counted := range store.Samples {
			sum += v.Sum(s.Source, s.Detail, counted)
		}
		got = append(got, fmt.Sprint(v.Type, " ", sum))
	}
	want := []string{
		"hits 21", "tracepoint:syscalls:sys_enter_write hits 5", "tracepoint:syscalls:sys_enter_w* hits 8", "tracepoint:syscalls:sys_*_write hits 8",
		"tracepoint:syscalls:sys_exit_write hits 3", "tracepoint:syscalls:sys_enter_writev hits 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got values %q, want %q", got, want)
	}
	rows := "hits  event\n   5  tracepoint:syscalls:sys_enter_write\n   3  tracepoint:syscalls:sys_exit_write\n   2  tracepoint:syscalls:sys_enter_writev\n"
	if got := strings.Join(m.matches().Table(store), "\n"); got != rows {
		t.Errorf("got\n%s\nwant\n%s", got, rows)
	}
	// Of patterns alone, the first has the value and the row.
	m.events, m.probes = m.events[1:], m.probes[1:]
	store = &stacks.Store{Samples: map[stacks.Sample]stacks.Values{{Source: 0}: {Hits: 6}, {Source: 1}: {Hits: 5}}}
	if got := m.Values(store)[3:]; len(got) != 1 || got[0].Sum(0, 0, stacks.Values{Hits: 6}) != 6 || got[0].Sum(1, 0, stacks.Values{Hits: 5}) != 0 {
		t.Errorf("got values %+v of patterns alone, want one of the first", got)
	}
}

// The table can be asked for before the events are found.
func TestTableWithoutProbes(t *testing.T) {
	if got := (attach.Matches{Probes: []*events.Probe{nil}}).Table(samples()); got != nil {
		t.Errorf("got %q, want none", got)
	}
}
