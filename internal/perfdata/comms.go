package perfdata

import (
	"cmp"
	"slices"
)

// comms holds the names of tasks over time.
type comms struct {
	pending []naming
	byTID   map[int32][]naming // sorted by time
	left    uint64             // number of dropped namings
}

// naming gives a task a name: a new one, or its parent's if it has none.
type naming struct {
	when        uint64
	tid, parent int32
	name        string
}

// maxNamings bounds the number of names, about 40 bytes each, and maxComm their length:
// the kernel's limit is 15 bytes.
const (
	maxNamings = 1 << 22
	maxComm    = 64
)

// add adds a naming, in any order. If there are too many, it drops and counts the last
// ones.
func (c *comms) add(n naming) {
	if len(c.pending) >= maxNamings {
		c.left++
		return
	}
	c.pending = append(c.pending, n)
}

// finish prepares for calls of at.
func (c *comms) finish() {
	slices.SortStableFunc(c.pending, func(a, b naming) int { return cmp.Compare(a.when, b.when) })
	c.byTID = map[int32][]naming{}
	for _, n := range c.pending {
		if n.name == "" {
			of := c.byTID[n.parent]
			if len(of) == 0 || n.tid == n.parent {
				continue
			}
			n.name = of[len(of)-1].name
		}
		c.byTID[n.tid] = append(c.byTID[n.tid], n)
	}
	c.pending = nil
}

// at returns the name of a task at a time, or its first known name if that is later.
func (c *comms) at(tid int32, when uint64) string {
	names := c.byTID[tid]
	i, found := slices.BinarySearchFunc(names, when, func(n naming, t uint64) int { return cmp.Compare(n.when, t) })
	switch {
	case len(names) == 0 && tid == 0:
		return "swapper"
	case len(names) == 0:
		return "[unknown]"
	case found:
		return names[i].name
	}
	return names[max(i-1, 0)].name
}
