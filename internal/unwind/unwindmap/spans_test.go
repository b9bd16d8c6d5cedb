package unwindmap

import (
	"slices"
	"testing"
)

func TestSpans(t *testing.T) {
	r := newSpans(10)
	a, _ := r.alloc(3)
	b, _ := r.alloc(4)
	c, ok := r.alloc(3)
	if a != 0 || b != 3 || c != 7 || !ok {
		t.Errorf("got spans at %d, %d, %d, want 0, 3, 7", a, b, c)
	}
	if _, ok := r.alloc(1); ok {
		t.Error("got a span without room")
	}
	r.release(span{0, 3})
	r.release(span{7, 3})
	if _, ok := r.alloc(4); ok {
		t.Error("got a span that is not contiguous")
	}
	r.release(span{3, 4})
	if want := []span{{0, 10}}; !slices.Equal(r.free, want) {
		t.Errorf("got free %v, want %v", r.free, want)
	}
}

// FuzzSpans allocates and frees spans: a positive byte allocates that many numbers, any other
// byte frees the oldest span.
func FuzzSpans(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0, 0, 0})
	f.Add([]byte{100, 100, 100, 0, 50, 200, 0, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		const limit = 512
		r := newSpans(limit)
		var taken [limit]bool
		var held []span
		mark := func(g span, is bool) {
			for i := g.start; i < g.start+g.n; i++ {
				if taken[i] == is {
					t.Fatalf("%d is taken twice or freed twice", i)
				}
				taken[i] = is
			}
		}
		for _, op := range ops {
			if op == 0 {
				if len(held) > 0 {
					mark(held[0], false)
					r.release(held[0])
					held = held[1:]
				}
				continue
			}
			start, ok := r.alloc(uint32(op))
			if !ok {
				if fits(taken[:], int(op)) {
					t.Fatalf("got no room for %d in %v", op, r.free)
				}
				continue
			}
			mark(span{start, uint32(op)}, true)
			held = append(held, span{start, uint32(op)})
		}
		for _, g := range held {
			r.release(g)
		}
		if want := []span{{0, limit}}; !slices.Equal(r.free, want) {
			t.Fatalf("got free %v, want %v", r.free, want)
		}
	})
}

// fits reports whether n contiguous elements are free.
func fits(taken []bool, n int) bool {
	row := 0
	for _, is := range taken {
		row++
		if is {
			row = 0
		}
		if row == n {
			return true
		}
	}
	return false
}
