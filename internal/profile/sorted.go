package profile

import (
	"container/heap"
	"iter"
)

// Sorted yields the elements of seq in order of the time at, as long as none is more than
// window elements late. It keeps that many elements in memory.
func Sorted[E any](at func(E) int64, window int, seq iter.Seq2[E, error]) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		var kept waiting[E]
		order := 0
		for event, err := range seq {
			if err != nil {
				yield(event, err)
				return
			}
			heap.Push(&kept, pending[E]{at(event), order, event})
			order++
			if len(kept) > window && !yield(heap.Pop(&kept).(pending[E]).event, nil) {
				return
			}
		}
		for len(kept) > 0 {
			if !yield(heap.Pop(&kept).(pending[E]).event, nil) {
				return
			}
		}
	}
}

// pending is an element that earlier ones may still precede. order breaks ties.
type pending[E any] struct {
	at    int64
	order int
	event E
}

// waiting is a heap of pending elements.
type waiting[E any] []pending[E]

func (w waiting[E]) Len() int { return len(w) }
func (w waiting[E]) Less(a, b int) bool {
	return w[a].at < w[b].at || w[a].at == w[b].at && w[a].order < w[b].order
}
func (w waiting[E]) Swap(a, b int) { w[a], w[b] = w[b], w[a] }
func (w *waiting[E]) Push(x any)   { *w = append(*w, x.(pending[E])) }
func (w *waiting[E]) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}
