package profile

import (
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
