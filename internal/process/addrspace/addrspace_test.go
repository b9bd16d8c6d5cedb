package addrspace

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// part shows bytes of a file: the one at start is at offset.
type part struct {
	start, limit, offset uint64
	file                 int
}

func (p part) Bounds() (start, limit uint64) { return p.start, p.limit }
func (p part) Cut(start, limit uint64) part {
	return part{start, limit, p.offset + start - p.start, p.file}
}

// shown is what an address shows.
type shown struct {
	file   int
	offset uint64
}

// The judge is a list with an entry for each address.
func TestSpace(t *testing.T) {
	const size = 64
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var spaces []Space[part]
		var models [][size]shown
		s, m := Space[part]{}, [size]shown{}
		for file := 1; file <= 40; file++ {
			start := rng.Uint64N(size)
			limit := start + rng.Uint64N(min(size-start, 20)+1)
			p := part{start, limit, rng.Uint64N(1000), file}
			removed := rng.IntN(5) == 0
			if removed {
				s = s.Without(start, limit)
			} else {
				s = s.With(p)
			}
			for addr := start; addr < limit; addr++ {
				if m[addr] = (shown{}); !removed {
					m[addr] = shown{file, p.offset + addr - start}
				}
			}
			spaces, models = append(spaces, s), append(models, m)
		}
		for i := range spaces { // also the older ones, which changes must not reach
			check(t, rng, spaces[i], models[i][:])
		}
	}
}

// check compares a space with the list.
func check(t *testing.T, rng *rand.Rand, s Space[part], want []shown) {
	t.Helper()
	for addr := range uint64(len(want)) {
		var got shown
		if p, ok := s.Find(addr); ok {
			got = shown{p.file, p.offset + addr - p.start}
		}
		if got != want[addr] {
			t.Fatalf("at %d: got %v, want %v", addr, got, want[addr])
		}
	}
	all := slices.Collect(s.All())
	if len(all) != s.Len() {
		t.Fatalf("got %d parts, want %d", len(all), s.Len())
	}
	for i, p := range all {
		if p.start >= p.limit || i > 0 && all[i-1].limit > p.start {
			t.Fatalf("got overlapping or empty parts %v", all)
		}
	}
	start := rng.Uint64N(uint64(len(want)))
	limit := start + rng.Uint64N(uint64(len(want)))
	over := slices.DeleteFunc(slices.Clone(all), func(p part) bool { return p.limit <= start || p.start >= limit })
	if got := slices.Collect(s.Over(start, limit)); start < limit && !slices.Equal(got, over) {
		t.Fatalf("over %d to %d: got %v, want %v", start, limit, got, over)
	}
}

// The end of the address space is no special case.
func TestEnd(t *testing.T) {
	const top = ^uint64(0)
	s := Space[part]{}.With(part{start: 1, limit: top, file: 1}).With(part{start: top - 1, limit: top, file: 2})
	if p, ok := s.Find(top - 1); !ok || p.file != 2 {
		t.Errorf("got %v", p)
	}
	if s.Len() != 2 || s.Without(0, top).Len() != 0 {
		t.Errorf("got %v", slices.Collect(s.All()))
	}
}

// However the addresses are ordered, the tree stays shallow.
func TestDepth(t *testing.T) {
	var s Space[part]
	for i := range uint64(1 << 14) {
		s = s.With(part{start: i * 2, limit: i*2 + 1})
	}
	var depth func(n *node[part]) int
	depth = func(n *node[part]) int {
		if n == nil {
			return 0
		}
		return 1 + max(depth(n.left), depth(n.right))
	}
	// The expected depth is about 35; the probability of 100 is below 1e-20.
	if d := depth(s.root); d > 100 {
		t.Errorf("got depth %d", d)
	}
}
