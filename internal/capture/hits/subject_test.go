package hits

import (
	"slices"
	"testing"

	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/profile"
)

// Each event has its own values, and the first value is the total of all.
func TestValues(t *testing.T) {
	m := New(Config{Events: []string{"kprobe:a", "sched:b"}, Weight: "field:size"})
	if err := m.Complete(source.Common{Target: new(target.Target)}); err != nil {
		t.Fatal(err)
	}
	want := []string{"hits", "size", "kprobe:a hits", "kprobe:a size", "tracepoint:sched:b hits", "tracepoint:sched:b size"}
	values := m.Values(nil)
	if got := source.Types(values); !slices.EqualFunc(got, want, func(v profile.ValueType, name string) bool { return v.Type == name }) {
		t.Fatalf("got values %v, want %v", got, want)
	}
	counted := stacks.Values{Hits: 3, Weight: 50}
	for at, want := range [][]int64{{3, 50, 3, 50, 0, 0}, {3, 50, 0, 0, 3, 50}} {
		var got []int64
		for _, v := range values {
			got = append(got, v.Sum(uint8(at), 0, counted))
		}
		if !slices.Equal(got, want) {
			t.Errorf("event %d: got %v, want %v", at, got, want)
		}
	}
	var meta profile.Meta
	if m.Describe(&meta); values[m.Shown()].Type != "size" || meta.Event != "kprobe:a, tracepoint:sched:b" {
		t.Errorf("got value %q of %q, want size of both events", values[m.Shown()].Type, meta.Event)
	}
}

func TestComplete(t *testing.T) {
	for _, c := range []Config{
		{}, {Events: []string{"cycles"}}, {Events: []string{"kprobe:a", "kprobe:a"}}, {Events: []string{"kprobe:a"}, Filter: "a ="},
		{Events: slices.Repeat([]string{"kprobe:a"}, attach.MaxEvents+1)},
	} {
		if err := New(c).Complete(source.Common{Target: new(target.Target)}); err == nil {
			t.Errorf("%+v: got no error", c)
		}
	}
	of := &target.Target{CPUs: []int{0}}
	if err := New(Config{Events: []string{"kprobe:a"}}).Complete(source.Common{Target: of}); err == nil {
		t.Error("got no error for a choice of CPUs")
	}
}

// If only one of many hits counts, that can be the reason why none does.
func TestWhyNothingOfMany(t *testing.T) {
	m := &Subject{common: source.Common{Target: &target.Target{Scope: target.System}}, Config: Config{Filter: "arg0<5", Every: 10}}
	if got, want := m.WhyNothing(), "nothing hit the event, or no hit passed the filter, or there were too few: one of 10 on each CPU counts"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhyNothing(t *testing.T) {
	const (
		file    = "; uprobes count in this very file: programs may use another copy, such as another version of a library"
		returns = "; returns of calls that were already in progress do not count"
	)
	for _, test := range []struct {
		probe events.Probe
		want  string
	}{
		{events.Probe{Event: events.Event{Kind: events.Tracepoint}}, ""},
		{events.Probe{Event: events.Event{Kind: events.Kretprobe}}, returns},
		{events.Probe{Event: events.Event{Kind: events.Uprobe}}, file},
		{events.Probe{Event: events.Event{Kind: events.Uretprobe}, Points: []events.Point{{Replaced: true}}}, file + returns},
		{events.Probe{Event: events.Event{Kind: events.Uretprobe}, Points: []events.Point{{}}}, file},
	} {
		m := &Subject{
			common: source.Common{Target: &target.Target{Scope: target.System}},
			events: []events.Event{test.probe.Event}, probes: []*events.Probe{&test.probe},
		}
		if got, want := m.WhyNothing(), "nothing hit the event"+test.want; got != want {
			t.Errorf("%v, places %v: got %q, want %q", test.probe.Event.Kind, test.probe.Points, got, want)
		}
	}
}
