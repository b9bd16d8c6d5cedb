package containers

import (
	"sync"
	"time"
)

// budgetShare is the share of time that may be spent from a budget in the long run.
const budgetShare = 10

// budget limits time: to burst at a time, and to 1/budgetShare of the elapsed time in the
// long run. The expense that exhausts it may exceed it. It is safe for concurrent use.
type budget struct {
	burst time.Duration

	mu   sync.Mutex
	used time.Duration
	at   time.Time // of used
}

// left returns the time that can be spent now, at least 0.
func (b *budget) left(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = max(b.used-now.Sub(b.at)/budgetShare, 0)
	b.at = now
	return max(b.burst-b.used, 0)
}

// spend records an expense.
func (b *budget) spend(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += d
}
