package annotate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/annotate"
)

// code builds a profile of "work" at 0x100, which calls itself, has "add" inlined, and is
// interrupted by the kernel.
type code struct {
	*profile.Builder
	mapping    profile.MappingID
	work, add  profile.FunctionID
	task, idle profile.TaskID
}

func newCode() *code {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	return &code{
		Builder: b,
		mapping: b.Mapping(profile.Mapping{Path: "/bin/work"}),
		work:    b.Function(profile.Function{Name: "work", File: "work.c"}),
		add:     b.Function(profile.Function{Name: "add", File: "add.h"}),
		task:    b.Task(profile.Task{PID: 1, Comm: "work"}),
		idle:    b.Task(profile.Task{PID: 2, Comm: "idle"}),
	}
}

func (c *code) at(fn profile.FunctionID, address uint64, line int, inlined bool) profile.FrameID {
	return c.Frame(profile.Frame{Function: fn, Mapping: c.mapping, Address: address, Line: line, Inlined: inlined})
}

// calls is like at for a caller, with the return address.
func (c *code) calls(fn profile.FunctionID, address uint64, line int, inlined bool) profile.FrameID {
	return c.Frame(profile.Frame{Function: fn, Mapping: c.mapping, Address: address, Return: true, Line: line, Inlined: inlined})
}

func (c *code) sample(task profile.TaskID, n int64, frames ...profile.FrameID) {
	at := profile.StackID(0)
	for _, f := range frames {
		at = c.Push(at, f)
	}
	c.Add(profile.Sample{Stack: at, Task: task, CPU: -1, Values: []int64{n, 10 * n}})
}

func TestFunction(t *testing.T) {
	c := newCode()
	kernel := c.Frame(profile.Frame{Function: c.Function(profile.Function{Name: "irq"}), Kind: profile.KindKernel, Address: 1 << 63})
	c.sample(c.task, 1, c.at(c.work, 0x108, 3, false))                                                                     // at an instruction
	c.sample(c.task, 2, c.calls(c.work, 0x110, 4, false), c.at(c.work, 0x108, 3, false))                                   // a frame called by another
	c.sample(c.task, 4, c.calls(c.work, 0x110, 4, false), c.calls(c.work, 0x110, 4, false), c.at(c.work, 0x110, 4, false)) // recursion
	c.sample(c.task, 8, c.at(c.work, 0x118, 5, false), c.at(c.add, 0x118, 70, true))                                       // inlined
	c.sample(c.task, 16, c.at(c.work, 0x118, 5, false), kernel)                                                            // interrupted
	c.sample(c.task, 32, kernel)                                                                                           // the kernel alone
	c.sample(c.idle, 64, c.calls(c.work, 0x120, 5, false), c.calls(c.add, 0x120, 71, true), c.at(c.work, 0x108, 3, false)) // another task
	p := c.Profile(profile.Meta{}, profile.Losses{})
	place := func(address uint64) annotate.Place {
		return annotate.Place{Mapping: c.mapping, Address: address, Function: c.work}
	}
	of := func(fn profile.FunctionID) func(profile.FrameID) bool {
		return func(id profile.FrameID) bool { return p.Frames[id].Function == fn }
	}
	first := annotate.Options{Value: 0, Task: func(id profile.TaskID) bool { return id == c.task }}
	tests := map[string]struct {
		fn      profile.FunctionID
		options annotate.Options
		want    annotate.Counts
	}{
		"function": {c.work, first, annotate.Counts{
			Weight: annotate.Weight{Self: 1 + 2 + 4, Total: 1 + 2 + 4 + 8 + 16},
			Lines: map[annotate.Line]annotate.Weight{
				{File: "work.c", Number: 3}: {Self: 1 + 2, Total: 1 + 2},
				{File: "work.c", Number: 4}: {Self: 4, Total: 2 + 4},
				{File: "work.c", Number: 5}: {Total: 8 + 16},
			},
			Places: map[annotate.Place]annotate.Weight{
				place(0x108): {Self: 1 + 2, Total: 1 + 2},
				place(0x10f): {Total: 2 + 4},
				place(0x110): {Self: 4, Total: 4},
				place(0x118): {Self: 8, Total: 8 + 16},
			},
		}},
		"inlined": {c.add, first, annotate.Counts{
			Weight: annotate.Weight{Self: 8, Total: 8},
			Lines:  map[annotate.Line]annotate.Weight{{File: "add.h", Number: 70}: {Self: 8, Total: 8}},
			Places: map[annotate.Place]annotate.Weight{place(0x118): {Self: 8, Total: 8}},
		}},
		"other value, all tasks": {c.add, annotate.Options{Value: 1}, annotate.Counts{
			Weight: annotate.Weight{Self: 80, Total: 80 + 640},
			Lines: map[annotate.Line]annotate.Weight{
				{File: "add.h", Number: 70}: {Self: 80, Total: 80},
				{File: "add.h", Number: 71}: {Total: 640},
			},
			Places: map[annotate.Place]annotate.Weight{
				place(0x118): {Self: 80, Total: 80},
				place(0x11f): {Total: 640},
			},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(test.want, annotate.Function(p, of(test.fn), test.options)); d != "" {
				t.Error("(-want +got):\n" + d)
			}
		})
	}
}

// A frame without an instruction counts for the function, and for no place.
func TestFunctionAlone(t *testing.T) {
	c := newCode()
	c.sample(c.task, 1, c.Frame(profile.Frame{Function: c.work, Mapping: c.mapping, Address: 0x100, AtFunction: true}))
	work := func(id profile.FrameID) bool { return id == 1 }
	got := annotate.Function(c.Profile(profile.Meta{}, profile.Losses{}), work, annotate.Options{})
	if got.Weight != (annotate.Weight{Self: 1, Total: 1}) || len(got.Places) > 0 {
		t.Errorf("got %+v with places %v, want 1, 1 without places", got.Weight, got.Places)
	}
}
