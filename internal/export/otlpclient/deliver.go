package otlpclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The first and the longest wait between attempts, before a jitter of up to half of it.
const (
	firstInterval = time.Second
	maxInterval   = 30 * time.Second
)

// NewBackOff returns the sequence of waits between attempts.
func NewBackOff() *backoff.ExponentialBackOff {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval, wait.Multiplier = firstInterval, maxInterval, 2
	return wait
}

// Deliver sends a message. It retries with growing waits while the back end is unreachable or
// asks for a retry, but not longer than limit; 0 means until ctx is done. It calls retried,
// if not nil, before each wait. Unless ctx is done, errors are of type [*Error]; if Retry is
// set, the limit was reached.
func (c *Client) Deliver(ctx context.Context, message []byte, limit time.Duration, retried func(error)) (Answer, error) {
	var last error
	send := func() (Answer, error) {
		var answer Answer
		answer, last = c.Send(ctx, message)
		var failed *Error
		switch {
		case last == nil:
			return answer, nil
		case !errors.As(last, &failed) || !failed.Retry:
			return answer, backoff.Permanent(last)
		}
		if retried != nil {
			retried(last)
		}
		if failed.After > 0 {
			return answer, &backoff.RetryAfterError{Duration: failed.After}
		}
		return answer, last
	}
	answer, err := backoff.Retry(ctx, send, backoff.WithBackOff(NewBackOff()), backoff.WithMaxElapsedTime(limit))
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return answer, fmt.Errorf("send to %s: %w", c.config.URL.Host, ctx.Err())
	}
	return answer, last
}
