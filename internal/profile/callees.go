package profile

// Callees links the stacks of a profile from callers to callees.
type Callees struct {
	// First holds for each stack the first stack with a callee of its leaf, and Next the next
	// stack with the same caller; 0 means none. First[0] is the first outermost function.
	First, Next []StackID
}

// Callees returns the links between the stacks of p.
func (p *Profile) Callees() Callees {
	c := Callees{make([]StackID, len(p.Stacks)), make([]StackID, len(p.Stacks))}
	for id := len(p.Stacks) - 1; id > 0; id-- {
		parent := p.Stacks[id].Parent
		c.First[parent], c.Next[id] = StackID(id), c.First[parent]
	}
	return c
}

// AddUp adds to the sum of each stack the sums of all stacks above it. sums is indexed by stack.
func (p *Profile) AddUp(sums []int64) {
	for id := len(p.Stacks) - 1; id > 0; id-- { // a stack's parent has a lower ID
		sums[p.Stacks[id].Parent] += sums[id]
	}
}
