package encodetest

import "fulgur/internal/profile"

// calls returns p, whose frames are all exact, with return addresses in the frames
// that call others, and by stack of p the one that it became. The user frame below
// the kernel's entered the kernel, and stays exact.
func calls(p *profile.Profile) (*profile.Profile, []profile.StackID) {
	b := profile.NewBuilder(p.ValueTypes...)
	for _, m := range p.Mappings[1:] {
		b.Mapping(m)
	}
	for _, f := range p.Functions[1:] {
		b.Function(f)
	}
	for _, t := range p.Tasks {
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
