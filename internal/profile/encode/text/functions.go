package text

import (
	"fulgur/internal/profile"
)

// FunctionSums are a function, or the unnamed frames of a module, with its self and total sums of all
// values of a profile: those of the stacks that it owns, see package own, and of those that contain it.
type FunctionSums struct {
	Name, Module string
	// Kernel is set if it is code of the kernel.
	Kernel bool
	// Self and Total have a sum for each value.
	Self, Total []int64
}

// Functions returns all functions of p. Native counts each stack for its leaf, even if that is an
// interpreter's function.
func Functions(p *profile.Profile, native bool) []FunctionSums {
	rows, rowOf := newRows(p)
	values := len(p.ValueTypes)
	list := make([]FunctionSums, len(rows))
	room := make([]int64, 2*values*len(rows))
	for i, r := range rows {
		at := 2 * values * i
		list[i] = FunctionSums{r.name, r.module, false, room[at : at+values : at+values], room[at+values : at+2*values : at+2*values]}
	}
	for id := 1; id < len(p.Frames); id++ {
		list[rowOf[id]].Kernel = p.Frames[id].Kind == profile.KindKernel
	}
	owners, waiters := OwnersOf(p, native).Frames, p.Waiters()
	sums := make([]int64, values*len(p.Stacks))
	of := func(s profile.StackID) []int64 { return sums[values*int(s) : values*(int(s)+1)] }
	for _, s := range p.Samples {
		waiter := waiters[s.Stack]
		if waiter == 0 {
			continue
		}
		addTo(of(s.Stack), s.Values)
		if f := owners[waiter]; f != 0 {
			addTo(list[rowOf[f]].Self, s.Values)
		}
	}
	for id := len(p.Stacks) - 1; id > 0; id-- { // a stack's parent has a lower ID
		addTo(of(p.Stacks[id].Parent), of(profile.StackID(id)))
	}
	// A function that calls itself counts once.
	active := make([]int, len(rows))
	callees := p.Callees()
	for id := callees.First[0]; id != 0; {
		r := rowOf[p.Stacks[id].Frame]
		if active[r] == 0 {
			addTo(list[r].Total, of(id))
		}
		active[r]++
		next := callees.First[id]
		for next == 0 && id != 0 {
			active[rowOf[p.Stacks[id].Frame]]--
			next, id = callees.Next[id], p.Stacks[id].Parent
		}
		id = next
	}
	return list
}

// addTo adds values to sums.
func addTo(sums, values []int64) {
	for i, v := range values {
		sums[i] += v
	}
}
