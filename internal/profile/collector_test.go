package profile

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCollector(t *testing.T) {
	samples, cycles := ValueType{"samples", "count"}, ValueType{"cycles", "count"}
	c := NewCollector(samples)
	task := c.Task(Task{Comm: "a"})
	one := c.Push(0, c.Frame(Frame{Address: 1}))
	c.Count(Sample{Task: task, CPU: -1}, 0, 1)
	c.Count(Sample{Stack: one, Task: task, CPU: -1, Values: []int64{9}}, c.Value(cycles), 100)
	c.Count(Sample{Stack: one, Task: task, CPU: -1}, c.Value(samples), 1)
	c.Count(Sample{Stack: one, Task: task, CPU: -1}, c.Value(cycles), 50)
	p := c.Profile(Meta{Command: "x"}, Losses{LossSamples: 2})
	if diff := cmp.Diff([]ValueType{samples, cycles}, p.ValueTypes); diff != "" {
		t.Errorf("value types (-want +got):\n%s", diff)
	}
	want := []Sample{
		{Task: task, CPU: -1, Values: []int64{1, 0}},
		{Stack: one, Task: task, CPU: -1, Values: []int64{1, 150}},
	}
	if diff := cmp.Diff(want, p.Samples); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	if p.Meta.Command != "x" || p.Losses[LossSamples] != 2 {
		t.Errorf("got metadata %+v and losses %+v, want those passed in", p.Meta, p.Losses)
	}
}

// Samples of different events are never added up, and one event keeps its plain names.
func TestCountEvent(t *testing.T) {
	t.Parallel()
	cycles, instructions := ValueType{Type: "cycles", Unit: "count"}, ValueType{Type: "instructions", Unit: "count"}
	for _, c := range []struct {
		events []ValueType
		want   string
		totals []int64
	}{
		{[]ValueType{cycles, cycles}, "[{samples count} {cycles count}] []", []int64{2, 14}},
		{[]ValueType{cycles, instructions, cycles}, "[{cycles samples count} {cycles count} {instructions samples count} {instructions count}] [cycles instructions]", []int64{2, 14, 1, 7}},
	} {
		b := NewCollector()
		for _, event := range c.events {
			b.CountEvent(Sample{Task: b.Task(Task{Comm: "a"}), CPU: -1}, event, 7)
		}
		p := b.Profile(Meta{}, Losses{})
		if got := fmt.Sprint(p.ValueTypes, " ", p.Events()); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
		for v, want := range c.totals {
			if got := p.Total(v); got != want {
				t.Errorf("%s: got %d, want %d", p.ValueTypes[v].Type, got, want)
			}
		}
	}
}
