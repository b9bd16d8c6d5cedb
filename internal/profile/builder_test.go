package profile

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/unwind/stackend"
)

func newTestBuilder() *Builder {
	return NewBuilder(ValueType{"samples", "count"}, ValueType{"cpu", "nanoseconds"})
}

func TestBuilderInterns(t *testing.T) {
	b := newTestBuilder()
	m := b.Mapping(Mapping{Path: "/bin/true"})
	f := b.Function(Function{Name: "main"})
	frame := b.Frame(Frame{Function: f, Mapping: m, Address: 1})
	inlined := b.Frame(Frame{Function: f, Mapping: m, Address: 1, Inlined: true})
	stack := b.Push(0, frame)
	task := b.Task(Task{PID: 1, Comm: "true"})

	if m == 0 || f == 0 || frame == 0 || stack == 0 {
		t.Errorf("got mapping %d, function %d, frame %d, stack %d; want no 0, which means none", m, f, frame, stack)
	}
	if frame == inlined {
		t.Error("different frames have the same ID")
	}
	if again := b.Mapping(Mapping{Path: "/bin/true"}); again != m {
		t.Errorf("equal mappings have IDs %d and %d", m, again)
	}
	if again := b.Function(Function{Name: "main"}); again != f {
		t.Errorf("equal functions have IDs %d and %d", f, again)
	}
	if again := b.Frame(Frame{Function: f, Mapping: m, Address: 1}); again != frame {
		t.Errorf("equal frames have IDs %d and %d", frame, again)
	}
	if again := b.Push(0, frame); again != stack {
		t.Errorf("equal stacks have IDs %d and %d", stack, again)
	}
	if child := b.Push(stack, frame); child <= stack {
		t.Errorf("got stack ID %d, want it above the parent's %d", child, stack)
	}
	if again := b.Task(Task{PID: 1, Comm: "true"}); again != task {
		t.Errorf("equal tasks have IDs %d and %d", task, again)
	}
	if other := b.Task(Task{PID: 1, Comm: "false"}); other == task {
		t.Error("different tasks have the same ID")
	}
}

func TestBuilderSumsSamples(t *testing.T) {
	b := newTestBuilder()
	stack := b.Push(0, b.Frame(Frame{Address: 1}))
	one := b.Task(Task{PID: 1})
	two := b.Task(Task{PID: 2})
	values := []int64{1, 10}
	for _, s := range []Sample{
		{Stack: stack, Task: one, CPU: -1},
		{Stack: stack, Task: one, CPU: -1},
		{Stack: stack, Task: two, CPU: -1},
		{Stack: stack, Task: one, CPU: 3},
		{Stack: stack, Task: one, CPU: -1, End: stackend.Depth},
		{Stack: 0, Task: one, CPU: -1},
		{Stack: stack, Task: one, CPU: -1},
	} {
		s.Values = values
		b.Add(s)
	}
	values[0] = 1000 // the builder must have copied the slice

	p := b.Profile(Meta{Duration: time.Second}, Losses{LossSamples: 7})
	want := []Sample{
		{stack, one, -1, stackend.None, []int64{3, 30}},
		{stack, two, -1, stackend.None, []int64{1, 10}},
		{stack, one, 3, stackend.None, []int64{1, 10}},
		{stack, one, -1, stackend.Depth, []int64{1, 10}},
		{0, one, -1, stackend.None, []int64{1, 10}},
	}
	if diff := cmp.Diff(want, p.Samples); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	if got := []int64{p.Total(0), p.Total(1)}; !slices.Equal(got, []int64{7, 70}) {
		t.Errorf("got totals %v, want [7 70]", got)
	}
	if p.Meta.Duration != time.Second || p.Losses[LossSamples] != 7 {
		t.Errorf("got metadata %+v and losses %+v, want those passed in", p.Meta, p.Losses)
	}
}

func TestBuilderRefusesOtherValues(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("got no panic for one value instead of two")
		}
	}()
	newTestBuilder().Add(Sample{Values: []int64{1}})
}

func TestAppendFrames(t *testing.T) {
	b := newTestBuilder()
	var s StackID
	var want []FrameID
	for addr := range uint64(3) {
		f := b.Frame(Frame{Address: addr + 1})
		s = b.Push(s, f)
		want = append([]FrameID{f}, want...)
	}
	p := b.Profile(Meta{}, Losses{})
	if got := p.AppendFrames(nil, s); !slices.Equal(got, want) {
		t.Errorf("got frames %v, want %v, leaf first", got, want)
	}
	if got := p.AppendFrames(nil, 0); len(got) != 0 {
		t.Errorf("got frames %v of the empty stack, want none", got)
	}
	if got := p.AppendFrames([]FrameID{9}, s); !slices.Equal(got, append([]FrameID{9}, want...)) {
		t.Errorf("got frames %v after 9, want %v", got, want)
	}
}
