package encodetest

import "fulgur/internal/profile"

// calls returns a copy of p in which frames that call others have return addresses; in p,
// all frames are exact. A user frame that entered the kernel stays exact. calls also
// returns the stack in the copy for each stack of p.
func calls(p *profile.Profile) (*profile.Profile, []profile.StackID) {
	b := profile.NewBuilder(p.ValueTypes...)
	for _, m := range p.Mappings[1:] {
		b.Mapping(m)
	}
	for _, f := range p.Functions[1:] {
		b.Function(f)
	}
	for _, t := range p.Tasks {
		t.Owner = b.Owner(p.OwnerAt(t.Owner))
		t.Labels = b.Labels(p.LabelsAt(t.Labels))
		b.Task(t)
	}
	leaves, callers := make([]profile.StackID, len(p.Stacks)), make([]profile.StackID, len(p.Stacks))
	for id := 1; id < len(p.Stacks); id++ {
		s := p.Stacks[id]
		f := p.Frames[s.Frame]
		belowLeaf, belowCaller := callers[s.Parent], callers[s.Parent]
		switch parent := p.Frames[p.Stacks[s.Parent].Frame]; {
		case f.Inlined:
			belowLeaf = leaves[s.Parent]
		case f.Kind == profile.KindKernel && parent.Kind != profile.KindKernel:
			belowLeaf, belowCaller = leaves[s.Parent], leaves[s.Parent]
		}
		leaves[id] = b.Push(belowLeaf, b.Frame(f))
		f.Return = true
		callers[id] = b.Push(belowCaller, b.Frame(f))
	}
	for _, s := range p.Samples {
		s.Stack = leaves[s.Stack]
		b.Add(s)
	}
	return b.Profile(p.Meta, p.Losses), leaves
}
