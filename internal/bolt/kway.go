package bolt

import (
	"errors"
	"io"
	"iter"
)

// sequence yields sorted values. next returns io.EOF at its end.
type sequence[T any] interface {
	next() (T, error)
}

// maxFanIn is the number of sequences to merge at once. It bounds the buffers and open
// files.
const maxFanIn = 64

// head is a sequence and its next value.
type head[T any] struct {
	value T
	src   sequence[T]
}

// mergeSorted yields the values of sorted sequences in order. It stops at the first error.
func mergeSorted[T any, S sequence[T]](sequences []S, compare func(a, b T) int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		heap := make([]head[T], 0, len(sequences))
		for _, src := range sequences {
			switch v, err := src.next(); {
			case err == nil:
				heap = append(heap, head[T]{v, src})
			case !errors.Is(err, io.EOF):
				yield(zero, err)
				return
			}
		}
		for i := len(heap)/2 - 1; i >= 0; i-- {
			siftDown(heap, i, compare)
		}
		for len(heap) > 0 {
			if !yield(heap[0].value, nil) {
				return
			}
			v, err := heap[0].src.next()
			switch {
			case err == nil:
				heap[0].value = v
			case errors.Is(err, io.EOF):
				heap[0] = heap[len(heap)-1]
				heap = heap[:len(heap)-1]
			default:
				yield(zero, err)
				return
			}
			siftDown(heap, 0, compare)
		}
	}
}

// siftDown moves the i-th element of a binary min-heap to its place.
func siftDown[T any](heap []head[T], i int, compare func(a, b T) int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && compare(heap[child+1].value, heap[child].value) < 0 {
			child++
		}
		if compare(heap[i].value, heap[child].value) <= 0 {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}
