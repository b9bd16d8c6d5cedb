// Package addrspace is the model of a process's address space: which part of it shows what. A new
// mapping replaces what was at its addresses, and nothing else: an older one of which it covers a
// part keeps the rest. The live tracker, readers of perf.data and profiles for llvm-bolt share it.
package addrspace

import (
	"iter"
	"math/rand/v2"
)

// Part is a part of an address space, such as a mapping.
type Part[P any] interface {
	// Bounds returns the first address and one past the last.
	Bounds() (start, limit uint64)
	// Cut returns what the part shows from start to limit, which lie within its bounds.
	Cut(start, limit uint64) P
}

// Space holds disjoint parts by address. It is a value: a changed Space shares most of its memory with
// the one that it was made of, which stays as it is. A change and a search take a time logarithmic in
// the number of parts. The zero Space has none.
type Space[P Part[P]] struct{ root *node[P] }

// node is an immutable node of a treap: a search tree by address, and a heap by random priority, which
// keeps it balanced for whatever order of changes.
type node[P Part[P]] struct {
	start, limit uint64
	priority     uint32
	size         int // number of parts in it
	left, right  *node[P]
	part         P
}

func newNode[P Part[P]](p P) *node[P] {
	start, limit := p.Bounds()
	return &node[P]{start: start, limit: limit, priority: rand.Uint32(), size: 1, part: p}
}

// with returns a copy of n with other children.
func (n *node[P]) with(left, right *node[P]) *node[P] {
	c := *n
	c.left, c.right, c.size = left, right, 1+left.count()+right.count()
	return &c
}

func (n *node[P]) count() int {
	if n == nil {
		return 0
	}
	return n.size
}

// split divides n into the parts that start before addr and the others.
func split[P Part[P]](n *node[P], addr uint64) (below, above *node[P]) {
	switch {
	case n == nil:
		return nil, nil
	case n.start < addr:
		below, above = split(n.right, addr)
		return n.with(n.left, below), above
	}
	below, above = split(n.left, addr)
	return below, n.with(above, n.right)
}

// join is the inverse of split.
func join[P Part[P]](below, above *node[P]) *node[P] {
	switch {
	case below == nil:
		return above
	case above == nil:
		return below
	case below.priority > above.priority:
		return below.with(below.left, join(below.right, above))
	}
	return above.with(join(below, above.left), above.right)
}

// last returns the part with the highest address.
func (n *node[P]) last() *node[P] {
	for n != nil && n.right != nil {
		n = n.right
	}
	return n
}

// around returns the parts of s below start and above limit, with what sticks out of the parts between.
func (s Space[P]) around(start, limit uint64) (below, above *node[P]) {
	below, rest := split(s.root, start)
	between, above := split(rest, limit)
	end := between.last()
	if over := below.last(); over != nil && over.limit > start {
		if end == nil {
			end = over
		}
		below, _ = split(below, over.start)
		below = join(below, newNode(over.part.Cut(over.start, start)))
	}
	if end != nil && end.limit > limit {
		above = join(newNode(end.part.Cut(limit, end.limit)), above)
	}
	return below, above
}

// With returns s after p was mapped over what was at its addresses. A p without an address changes
// nothing.
func (s Space[P]) With(p P) Space[P] {
	start, limit := p.Bounds()
	if start >= limit {
		return s
	}
	below, above := s.around(start, limit)
	return Space[P]{join(join(below, newNode(p)), above)}
}

// Without returns s after what was from start to limit is gone.
func (s Space[P]) Without(start, limit uint64) Space[P] {
	if start >= limit {
		return s
	}
	return Space[P]{join(s.around(start, limit))}
}

// At returns the part that contains addr, or nil. It must not be changed.
func (s Space[P]) At(addr uint64) *P {
	for n := s.root; n != nil; {
		switch {
		case addr < n.start:
			n = n.left
		case addr >= n.limit:
			n = n.right
		default:
			return &n.part
		}
	}
	return nil
}

// Find returns the part that contains addr.
func (s Space[P]) Find(addr uint64) (p P, ok bool) {
	if at := s.At(addr); at != nil {
		return *at, true
	}
	return p, false
}

// Over returns the parts, ascending and uncut, that share an address with the range from start to limit.
func (s Space[P]) Over(start, limit uint64) iter.Seq[P] {
	return func(yield func(P) bool) { s.root.over(start, limit, yield) }
}

func (n *node[P]) over(start, limit uint64, yield func(P) bool) bool {
	if n == nil {
		return true
	}
	if start < n.start && !n.left.over(start, limit, yield) {
		return false
	}
	if n.start < limit && start < n.limit && !yield(n.part) {
		return false
	}
	return n.limit >= limit || n.right.over(start, limit, yield)
}

// All returns all parts, ascending.
func (s Space[P]) All() iter.Seq[P] {
	return func(yield func(P) bool) { s.root.all(yield) }
}

func (n *node[P]) all(yield func(P) bool) bool {
	return n == nil || n.left.all(yield) && yield(n.part) && n.right.all(yield)
}

// Len returns the number of parts.
func (s Space[P]) Len() int { return s.root.count() }
