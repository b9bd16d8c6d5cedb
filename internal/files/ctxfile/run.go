package ctxfile

import (
	"context"
	"fmt"
	"runtime/debug"
)

// Run returns the result of f, or the context's error once ctx is done. f may then still run, and
// must not change what the caller uses. A panic of f becomes one of the caller, whose deferred
// functions run.
func Run[T any](ctx context.Context, f func() (T, error)) (value T, err error) {
	done, crashed := make(chan struct{}), make(chan string, 1)
	var result T
	var failed error
	go func() {
		defer func() {
			if bug := recover(); bug != nil {
				crashed <- fmt.Sprintf("%v\n%s", bug, debug.Stack())
			}
		}()
		result, failed = f()
		close(done)
	}()
	select {
	case <-done:
		return result, failed
	case bug := <-crashed:
		panic(bug)
	case <-ctx.Done():
		return value, ctx.Err()
	}
}
