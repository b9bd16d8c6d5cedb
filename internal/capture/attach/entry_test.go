package attach

import (
	"slices"
	"testing"

	"fulgur/internal/capture/events"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/symbolize"
)

// At the entry of a function, the stack ends in that function, not in functions that are inlined
// there.
func TestPlaceAtEntry(t *testing.T) {
	uprobe := events.Event{Kind: events.Uprobe, Path: "app", Name: "outer"}
	offset := uprobe
	offset.Offset = 4
	for _, test := range []struct {
		event events.Event
		want  []string
	}{
		{uprobe, []string{"outer"}},
		{offset, []string{"inner", "outer"}},
		{events.Event{Kind: events.USDT, Path: "app", Group: "a", Name: "b"}, []string{"inner", "outer"}},
	} {
		store := stackstest.NewStore(t, stackstest.Layout{File: &process.File{Path: "/usr/bin/app"}},
			stackstest.Trace{ID: 1, User: []uint64{stackstest.FileAt}, End: stackstest.Ended})
		names := naming.Given(store, debugfiletest.NewFinder(t), map[uint64][]symbolize.Frame{
			0x2000: {{Name: "inner", Inlined: true}, {Name: "outer"}},
		})
		b := profile.NewBuilder(profile.ValueType{Type: "hits", Unit: "count"})
		m := Matches{Probes: []*events.Probe{{Event: test.event}}}
		stack := m.Place(naming.NewStackBuilder(b, store, names), stacks.Sample{}, false)
		b.Add(profile.Sample{Stack: stack, Task: b.Task(profile.Task{PID: 1}), CPU: -1, Values: []int64{1}})
		p := b.Profile(profile.Meta{}, profile.Losses{})
		var got []string
		for _, f := range p.AppendFrames(nil, p.Samples[0].Stack) {
			got = append(got, p.FrameName(f))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.event, got, test.want)
		}
	}
}
