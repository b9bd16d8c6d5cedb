package attach

import (
	"slices"
	"testing"

	"fulgur/internal/capture/events"
)

// The notes about the returns of functions do not repeat the notes about their calls.
func TestNotes(t *testing.T) {
	const part = "a part of a function"
	call := &events.Probe{Event: events.Event{Kind: events.Kprobe, Name: "f*"}, Points: make([]events.Point, 2)}
	call.LeftOut = map[string]events.LeftOut{part: {Names: []string{"f.cold"}, Count: 1}}
	same, other := *call, *call
	same.Event.Kind, other.Event.Kind = events.Kretprobe, events.Kretprobe
	other.Points = make([]events.Point, 3)
	other.LeftOut = map[string]events.LeftOut{part: {Names: []string{"f.cold"}, Count: 1}, "other": {Names: []string{"f1"}, Count: 7}}
	for _, test := range []struct {
		name    string
		e, call *events.Probe
		want    []string
	}{
		{"calls", call, nil, []string{"kprobe:f*: 2 places", "kprobe:f*: left out f.cold: " + part}},
		{"returns alone", &same, nil, []string{"kretprobe:f*: 2 places", "kretprobe:f*: left out f.cold: " + part}},
		{"returns of the same functions", &same, call, nil},
		{"returns of other functions", &other, call, []string{"kretprobe:f*: 3 places", "kretprobe:f*: left out f1 and 6 more: other"}},
	} {
		if got := Notes(test.e, test.call); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
