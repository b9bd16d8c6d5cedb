package unwindmap

import "slices"

// spans allocates spans of consecutive numbers below a limit. It always picks the lowest free
// ones, to keep the used ones together.
type spans struct {
	free []span // sorted, not empty and not adjacent
}

// span is n consecutive numbers from start on.
type span struct{ start, n uint32 }

func newSpans(limit uint32) *spans { return &spans{free: []span{{0, limit}}} }

// alloc allocates n > 0 consecutive numbers and returns the first. ok is false if there is no
// free span of that length.
func (r *spans) alloc(n uint32) (start uint32, ok bool) {
	for i := range r.free {
		f := &r.free[i]
		if f.n < n {
			continue
		}
		start = f.start
		f.start, f.n = f.start+n, f.n-n
		if f.n == 0 {
			r.free = slices.Delete(r.free, i, i+1)
		}
		return start, true
	}
	return 0, false
}

// release frees all or part of a span.
func (r *spans) release(g span) {
	if g.n == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(r.free, g, func(a, b span) int {
		if a.start < b.start {
			return -1
		}
		return 1
	})
	r.free = slices.Insert(r.free, i, g)
	if i+1 < len(r.free) && g.start+g.n == r.free[i+1].start {
		r.free[i].n += r.free[i+1].n
		r.free = slices.Delete(r.free, i+1, i+2)
	}
	if i > 0 && r.free[i-1].start+r.free[i-1].n == g.start {
		r.free[i-1].n += r.free[i].n
		r.free = slices.Delete(r.free, i, i+1)
	}
}
