package session

import (
	"context"
	"sync/atomic"
)

// queue passes work to the writer, the goroutine that names and writes samples.
type queue struct {
	items   chan queued
	waiting atomic.Int64 // sum of the sizes of items that are not done
	failure chan error   // why write ended early
}

type queued struct {
	do   func(context.Context) error
	size int64
}

// newQueue returns a queue that holds n items before put blocks.
func newQueue(n int) *queue {
	return &queue{items: make(chan queued, n), failure: make(chan error, 1)}
}

// put adds work. The context that the writer passes to do ends the lookup of names.
func (q *queue) put(do func(context.Context) error, size int) {
	q.waiting.Add(int64(size))
	q.items <- queued{do, int64(size)}
}

// end ends the queue: no more items follow.
func (q *queue) end() { close(q.items) }

// write does the work until the queue ends. After an error it only discards items, so that
// put does not block.
func (q *queue) write(ctx context.Context) {
	for next := range q.items {
		if err := next.do(ctx); err != nil {
			q.failure <- err
			for range q.items {
			}
			return
		}
		q.waiting.Add(-next.size)
	}
}

// failed returns the error of write, once.
func (q *queue) failed() error {
	select {
	case err := <-q.failure:
		return err
	default:
		return nil
	}
}
