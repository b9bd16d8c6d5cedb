package containers

import (
	"sync"
	"time"
)

// budgetShare is the share of time that may be spent from a budget in the long run.
const budgetShare = 10

// budget limits time: to most at once, which is exceeded once at most, and to 1/budgetShare
// in the long run. It is safe for concurrent use.
type budget struct {
	most time.Duration

	mu   sync.Mutex
	used time.Duration
	at   time.Time // of used
}

// rest returns how much can be spent now, at least 0.
func (b *budget) rest(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = max(b.used-now.Sub(b.at)/budgetShare, 0)
	b.at = now
	return max(b.most-b.used, 0)
}

// spend notes an expense.
func (b *budget) spend(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += d
}
