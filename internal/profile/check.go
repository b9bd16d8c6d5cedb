package profile

import (
	"errors"
	"fmt"
)

// ErrInvalid matches the errors of [Profile.Check].
var ErrInvalid = errors.New("invalid profile")

// Check returns an [ErrInvalid] if a table refers to a missing row, a stack does not
// come after its caller, or the profile exceeds the limits of this package. It is what
// encoders rely on, so decoders check what they made of their input.
func (p *Profile) Check() error {
	for _, check := range []func() error{p.checkTables, p.checkNames, p.checkFrames, p.checkSamples} {
		if err := check(); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return nil
}

func (p *Profile) checkTables() error {
	if len(p.Mappings) == 0 || len(p.Functions) == 0 || len(p.Frames) == 0 || len(p.Stacks) == 0 {
		return errors.New("a table lacks row 0")
	}
	if len(p.ValueTypes) > MaxValues {
		return fmt.Errorf("%d types of values, the maximum is %d", len(p.ValueTypes), MaxValues)
	}
	return nil
}

// checkNames checks the lengths of names.
func (p *Profile) checkNames() error {
	for id, m := range p.Mappings {
		if max(len(m.Path), len(m.BuildID)) > MaxName {
			return fmt.Errorf("mapping %d has a name of more than %d bytes", id, MaxName)
		}
	}
	for id, f := range p.Functions {
		if max(len(f.Name), len(f.SystemName), len(f.File)) > MaxName {
			return fmt.Errorf("function %d has a name of more than %d bytes", id, MaxName)
		}
	}
	for id, t := range p.Tasks {
		if len(t.Comm) > MaxName {
			return fmt.Errorf("task %d has a name of more than %d bytes", id, MaxName)
		}
		if t.Owner != 0 && int(t.Owner) >= len(p.Owners) {
			return fmt.Errorf("task %d has owner %d of %d", id, t.Owner, len(p.Owners))
		}
		if t.Labels != 0 && int(t.Labels) >= len(p.Labels) {
			return fmt.Errorf("task %d has labels %d of %d", id, t.Labels, len(p.Labels))
		}
	}
	for id, o := range p.Owners {
		for _, name := range o.fields() {
			if len(*name) > MaxName {
				return fmt.Errorf("owner %d has a name of more than %d bytes", id, MaxName)
			}
		}
	}
	return nil
}

func (p *Profile) checkFrames() error {
	for id, f := range p.Frames {
		if int(f.Function) >= len(p.Functions) || int(f.Mapping) >= len(p.Mappings) {
			return fmt.Errorf("frame %d has function %d of %d and mapping %d of %d", id, f.Function, len(p.Functions), f.Mapping, len(p.Mappings))
		}
	}
	return nil
}

// checkSamples checks stacks and samples.
func (p *Profile) checkSamples() error {
	depths := make([]uint16, len(p.Stacks)) // at most MaxDepth+1
	for id, s := range p.Stacks[1:] {
		id++
		if int(s.Parent) >= id || s.Frame == 0 || int(s.Frame) >= len(p.Frames) {
			return fmt.Errorf("stack %d has parent %d and frame %d of %d", id, s.Parent, s.Frame, len(p.Frames))
		}
		if depths[id] = depths[s.Parent] + 1; depths[id] > MaxDepth {
			return fmt.Errorf("stack %d has %d frames, the maximum is %d", id, depths[id], MaxDepth)
		}
	}
	frames := 0
	for i, s := range p.Samples {
		if int(s.Stack) >= len(p.Stacks) || int(s.Task) >= len(p.Tasks) || len(s.Values) != len(p.ValueTypes) {
			return fmt.Errorf("sample %d has stack %d of %d, task %d of %d, and %d values of %d", i, s.Stack, len(p.Stacks), s.Task, len(p.Tasks), len(s.Values), len(p.ValueTypes))
		}
		frames += int(depths[s.Stack])
	}
	if limit := MaxFrames + len(p.Samples); frames > limit {
		return fmt.Errorf("the samples have %d frames, the maximum is %d", frames, limit)
	}
	return nil
}
