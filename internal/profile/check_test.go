package profile

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	long := strings.Repeat("x", MaxName+1)
	for name, test := range map[string]struct {
		damage func(*Profile)
		want   string // "" if the profile is valid
	}{
		"valid":           {func(*Profile) {}, ""},
		"no rows":         {func(p *Profile) { p.Frames = nil }, "row 0"},
		"too many values": {func(p *Profile) { p.ValueTypes = make([]ValueType, MaxValues+1) }, "types of values"},
		"path":            {func(p *Profile) { p.Mappings[1].Path = long }, "mapping 1"},
		"build ID":        {func(p *Profile) { p.Mappings[1].BuildID = long }, "mapping 1"},
		"function name":   {func(p *Profile) { p.Functions[1].SystemName = long }, "function 1"},
		"comm":            {func(p *Profile) { p.Tasks[0].Comm = long }, "task 0"},
		"function":        {func(p *Profile) { p.Frames[1].Function = 2 }, "frame 1 has function 2 of 2"},
		"mapping":         {func(p *Profile) { p.Frames[1].Mapping = 2 }, "mapping 2 of 2"},
		"parent":          {func(p *Profile) { p.Stacks[1].Parent = 1 }, "stack 1 has parent 1"},
		"no frame":        {func(p *Profile) { p.Stacks[2].Frame = 0 }, "stack 2"},
		"frame":           {func(p *Profile) { p.Stacks[2].Frame = 3 }, "frame 3 of 3"},
		"depth": {func(p *Profile) {
			for range MaxDepth {
				p.Stacks = append(p.Stacks, Stack{Parent: StackID(len(p.Stacks) - 1), Frame: 1})
			}
		}, "frames, the maximum is"},
		"stack":  {func(p *Profile) { p.Samples[0].Stack = 3 }, "stack 3 of 3"},
		"task":   {func(p *Profile) { p.Samples[0].Task = 1 }, "task 1 of 1"},
		"values": {func(p *Profile) { p.Samples[0].Values = nil }, "0 values of 1"},
		"frames of all samples": {func(p *Profile) {
			for range MaxDepth - 2 {
				p.Stacks = append(p.Stacks, Stack{Parent: StackID(len(p.Stacks) - 1), Frame: 1})
			}
			sample := p.Samples[0]
			sample.Stack = StackID(len(p.Stacks) - 1)
			p.Samples = slices.Repeat([]Sample{sample}, MaxFrames/MaxDepth+MaxFrames/MaxDepth/MaxDepth+2)
		}, "the samples have"},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBuilder(ValueType{Type: "samples", Unit: "count"})
			frame := Frame{Mapping: b.Mapping(Mapping{Path: "/bin/a"}), Function: b.Function(Function{Name: "f"})}
			stack := b.Push(b.Push(0, b.Frame(frame)), b.Frame(Frame{Address: 1}))
			b.Add(Sample{Stack: stack, Task: b.Task(Task{PID: 1}), Values: []int64{1}})
			p := b.Profile(Meta{}, Losses{})
			test.damage(p)
			err := p.Check()
			if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}
