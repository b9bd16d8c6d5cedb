package dwarf

import (
	"cmp"
	"slices"
)

// segments maps addresses to ids. Segment i is the code from lo[i] up to lo[i+1]. The
// last one begins at the end of all code.
type segments struct {
	lo []uint64
	id []int32 // -1 where there is no code
}

// find returns the id at an address, or -1.
func (s *segments) find(addr uint64) int32 {
	_, id := s.segment(addr)
	return id
}

// segment returns the start and id of the segment that contains an address.
func (s *segments) segment(addr uint64) (lo uint64, id int32) {
	i, j := 0, len(s.lo) // the first segment above addr is between them
	for i < j {
		if mid := int(uint(i+j) / 2); s.lo[mid] <= addr {
			i = mid + 1
		} else {
			j = mid
		}
	}
	if i == 0 {
		return 0, -1
	}
	return s.lo[i-1], s.id[i-1]
}

// bytes returns the memory size of s.
func (s *segments) bytes() int { return 12 * cap(s.lo) }

func (s *segments) add(lo uint64, id int32) {
	if n := len(s.id); n > 0 && s.id[n-1] == id {
		return
	}
	s.lo = append(s.lo, lo)
	s.id = append(s.id, id)
}

// paint converts spans, which it reorders, into segments. Where spans overlap, the
// greatest id wins.
func paint(spans []span) segments {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	s := segments{lo: make([]uint64, 0, len(spans)+1), id: make([]int32, 0, len(spans)+1)}
	// The spans that cover pos, as a heap with the greatest id first. Spans below the top may
	// have ended already.
	var open spanHeap
	pos := uint64(0)
	for i := 0; i < len(spans) || len(open) > 0; {
		if len(open) == 0 {
			pos = spans[i].lo
		}
		for ; i < len(spans) && spans[i].lo <= pos; i++ {
			open.push(spans[i])
		}
		for len(open) > 0 && open[0].hi <= pos {
			open.pop()
		}
		if len(open) == 0 {
			s.add(pos, -1)
			continue
		}
		s.add(pos, open[0].id)
		pos = open[0].hi
		if i < len(spans) {
			pos = min(pos, spans[i].lo)
		}
	}
	return segments{slices.Clip(s.lo), slices.Clip(s.id)}
}

// spanHeap is a binary heap. container/heap would allocate for every element.
type spanHeap []span

func (h *spanHeap) push(s span) {
	*h = append(*h, s)
	a := *h
	for i := len(a) - 1; i > 0; {
		parent := (i - 1) / 2
		if a[parent].id >= a[i].id {
			return
		}
		a[parent], a[i] = a[i], a[parent]
		i = parent
	}
}

func (h *spanHeap) pop() {
	a := *h
	n := len(a) - 1
	a[0] = a[n]
	*h = a[:n]
	a = *h
	for i := 0; ; {
		child := 2*i + 1
		if child >= n {
			return
		}
		if child+1 < n && a[child+1].id > a[child].id {
			child++
		}
		if a[i].id >= a[child].id {
			return
		}
		a[i], a[child] = a[child], a[i]
		i = child
	}
}
