package session

import (
	"context"
	"sync/atomic"
)

// queue passes the samples of a run to a goroutine that names and writes them.
type queue[T any] struct {
	handle  func(context.Context, T) error // names and writes an item
	items   chan queued[T]
	waiting atomic.Int64 // sum of the sizes of items that are not written
	failure chan error   // why write ended early
}

type queued[T any] struct {
	item T
	size int64
}

// newQueue returns a queue that holds n items before put blocks.
func newQueue[T any](n int, handle func(context.Context, T) error) *queue[T] {
	return &queue[T]{handle: handle, items: make(chan queued[T], n), failure: make(chan error, 1)}
}

// put adds an item.
func (q *queue[T]) put(item T, size int) {
	q.waiting.Add(int64(size))
	q.items <- queued[T]{item, int64(size)}
}

// end ends the queue: no more items follow.
func (q *queue[T]) end() { close(q.items) }

// write handles items until the queue ends. After an error it only discards
// them, so that put does not block.
func (q *queue[T]) write(ctx context.Context) {
	for next := range q.items {
		if err := q.handle(ctx, next.item); err != nil {
			q.failure <- err
			for range q.items {
			}
			return
		}
		q.waiting.Add(-next.size)
	}
}

// failed returns the error of write, once.
func (q *queue[T]) failed() error {
	select {
	case err := <-q.failure:
		return err
	default:
		return nil
	}
}
