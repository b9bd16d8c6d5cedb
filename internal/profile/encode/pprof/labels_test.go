package pprof

import (
	"maps"
	"testing"

	"fulgur/internal/profile"
)

// Labels of programs are labels of samples. They do not replace those of fulgur.
func TestLabels(t *testing.T) {
	t.Parallel()
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	labels := b.Labels(profile.Labels{{Key: "comm", Value: "forged"}, {Key: "kind", Value: "x"}, {Key: "pid", Value: "1"}})
	b.Add(profile.Sample{Task: b.Task(profile.Task{PID: 7, Comm: "server", Labels: labels}), CPU: -1, Values: []int64{1}})
	p := roundTrip(t, b.Profile(profile.Meta{}, profile.Losses{}), Options{})
	got := map[string]string{}
	for key, values := range p.Sample[0].Label {
		got[key] = values[0]
	}
	want := map[string]string{"comm": "server", "kind": "x", "label.comm": "forged", "pid": "1"}
	if !maps.Equal(got, want) || p.Sample[0].NumLabel["pid"][0] != 7 {
		t.Errorf("got %v, want %v", got, want)
	}
}
