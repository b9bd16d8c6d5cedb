package dwarf

import "sync"

// state is the parsed state of a unit.
type state struct {
	unit *unit // the unit in the address index
	// Guarded by cache.mu.
	users      int
	size       int // in bytes, as of the last use
	prev, next *state

	mu     sync.Mutex // guards the fields below
	opened bool
	body   *unit // the unit with the entries: unit, or one in another file
	whole  bool  // functions were searched for in types and functions too
	funcs  []function
	index  segments // address to function
	names  map[ref]*Function
	lines  *lineTable
	err    error // error from opening
	bytes  int   // memory size of the above
}

// Memory sizes in bytes, including the share of maps.
const (
	stateSize    = 1024
	functionSize = 16
	nameSize     = 128
)

// cache keeps the most recently used states within a memory budget.
type cache struct {
	budget int
	mu     sync.Mutex
	total  int
	ring   state // states without users, least recently used first
}

func newCache(budget int) *cache {
	c := &cache{budget: budget}
	c.ring.prev, c.ring.next = &c.ring, &c.ring
	return c
}

// get returns the locked state of a unit, and keeps it until put.
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

// put unlocks a state and evicts others if the total is too large.
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
