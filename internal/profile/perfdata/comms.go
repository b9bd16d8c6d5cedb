package perfdata

import (
	"cmp"
	"slices"
)

// comms are the names that tasks had, by time.
type comms struct {
	pending []naming
	byTID   map[int32][]naming // sorted by time
	left    uint64             // namings that were left out
}

// naming is a task that gets a name, or another's if it has none of its own.
type naming struct {
	when        uint64
	tid, parent int32
	name        string
}

// maxNamings bounds how many names are kept, some 40 bytes each, and maxComm how
// much of one: the kernel has 15 bytes for it.
const (
	maxNamings = 1 << 22
	maxComm    = 64
)

// add takes in a naming that may be out of order. Of too many the last are left
// out and counted.
func (c *comms) add(n naming) {
	if len(c.pending) >= maxNamings {
		c.left++
		return
	}
	c.pending = append(c.pending, n)
}

// finish makes the names known.
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

// at returns the name that a task had at a time: the first it is known to have
// had if that is later.
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
