package firefox

import (
	"container/heap"
	"iter"
)

// head is a sequence and its next element.
type head[E any] struct {
	at    int64
	event E
	order int // index of the sequence; breaks ties
	next  func() (E, error, bool)
}

// heads is a heap of sequences by the time of their next element.
type heads[E any] []head[E]

func (h heads[E]) Len() int { return len(h) }
func (h heads[E]) Less(a, b int) bool {
	return h[a].at < h[b].at || h[a].at == h[b].at && h[a].order < h[b].order
}
func (h heads[E]) Swap(a, b int) { h[a], h[b] = h[b], h[a] }
func (h *heads[E]) Push(x any)   { *h = append(*h, x.(head[E])) }
func (h *heads[E]) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// merge merges sequences that are sorted by the time at. It stops at the first error.
func merge[E any](at func(E) int64, all ...iter.Seq2[E, error]) iter.Seq2[E, error] {
	if len(all) == 1 {
		return all[0]
	}
	return func(yield func(E, error) bool) {
		var waiting heads[E]
		stops := make([]func(), 0, len(all))
		defer func() {
			for _, stop := range stops {
				stop()
			}
		}()
		for i, seq := range all {
			next, stop := iter.Pull2(seq)
			stops = append(stops, stop)
			event, err, ok := next()
			if err != nil {
				yield(event, err)
				return
			}
			if ok {
				waiting = append(waiting, head[E]{at(event), event, i, next})
			}
		}
		heap.Init(&waiting)
		for len(waiting) > 0 {
			first := &waiting[0]
			if !yield(first.event, nil) {
				return
			}
			event, err, ok := first.next()
			switch {
			case err != nil:
				yield(event, err)
				return
			case ok:
				first.at, first.event = at(event), event
				heap.Fix(&waiting, 0)
			default:
				heap.Pop(&waiting)
			}
		}
	}
}

// transform applies f to each element of seq.
func transform[A, B any](seq iter.Seq2[A, error], f func(A) B) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		for a, err := range seq {
			if err != nil {
				var b B
				yield(b, err)
				return
			}
			if !yield(f(a), nil) {
				return
			}
		}
	}
}

// isEmpty reports whether seq yields nothing, not even an error.
func isEmpty[E any](seq iter.Seq2[E, error]) bool {
	empty := true
	seq(func(E, error) bool {
		empty = false
		return false
	})
	return empty
}
