package dwarf

import "sync"

// state is what look-ups have learnt about a unit.
type state struct {
	unit *unit // that the index of addresses names
	// Guarded by cache.mu.
	users      int
	size       int // bytes, as of the last use
	prev, next *state

	mu     sync.Mutex // guards what follows
	opened bool
	body   *unit // where the entries are: unit, or another file's
	whole  bool  // functions were searched for everywhere
	funcs  []function
	index  segments // address to function
	names  map[ref]*Function
	lines  *lineTable
	err    error // of opening
	bytes  int   // that the above takes
}

// Memory of what a state holds, in bytes, with its share of maps.
const (
	stateSize    = 1024
	functionSize = 16
	nameSize     = 128
)

// cache keeps the states used last within a budget of memory.
type cache struct {
	budget int
	mu     sync.Mutex
	total  int
	ring   state // of the states without users, least recently used first
}

func newCache(budget int) *cache {
	c := &cache{budget: budget}
	c.ring.prev, c.ring.next = &c.ring, &c.ring
	return c
}

// get returns the state of a unit, locked, and keeps it until put.
func (c *cache) get(u *unit) *state {
	c.mu.Lock()
	s := u.state
	if s == nil {
		s = &state{unit: u}
		u.state = s
	}
	if s.users == 0 && s.next != nil {
		s.prev.next, s.next.prev = s.next, s.prev
		s.prev, s.next = nil, nil
	}
	s.users++
	c.mu.Unlock()
	s.mu.Lock()
	return s
}

// put unlocks a state and forgets others if all together are too large.
func (c *cache) put(s *state) {
	size := s.bytes
	s.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += size - s.size
	s.size = size
	if s.users--; s.users == 0 {
		s.prev, s.next = c.ring.prev, &c.ring
		s.prev.next, s.next.prev = s, s
	}
	for c.total > c.budget && c.ring.next != &c.ring {
		old := c.ring.next
		old.prev.next, old.next.prev = old.next, old.prev
		old.unit.state = nil
		c.total -= old.size
	}
}
