// Package budget limits the time that is spent on others, who could otherwise slow fulgur down at will.
package budget

import (
	"sync"
	"time"
)

// Time limits time: to a burst at a time, and to a share of the elapsed time in the long run. The
// expense that exhausts it may exceed it. It is safe for concurrent use.
type Time struct {
	burst, divisor time.Duration

	mu   sync.Mutex
	used time.Duration
	at   time.Time // of used
}

// New returns a full budget of burst, and in the long run of 1/divisor of the elapsed time.
func New(burst time.Duration, divisor int) *Time {
	return &Time{burst: burst, divisor: time.Duration(divisor)}
}

// Left returns the time that can be spent now, at least 0.
func (t *Time) Left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.used = max(t.used-now.Sub(t.at)/t.divisor, 0)
	t.at = now
	return max(t.burst-t.used, 0)
}

// Spend records an expense.
func (t *Time) Spend(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used += d
}
