package safeopen

import (
	"sync"
	"time"
)

// A [Budget] has at most maxBudget, and 1/budgetShare of the time in the long run. But each
// request may take minWait, in which a local file system answers.
const (
	maxBudget   = 500 * time.Millisecond
	budgetShare = 10
	minWait     = time.Millisecond
)

// Budget limits the total time that a loop waits for answers. Otherwise strangers could
// delay it at will by mounting many file systems that do not respond. It is safe for
// concurrent use. A nil Budget limits only each request.
type Budget struct {
	mu   sync.Mutex
	left time.Duration
	at   time.Time // the time of left
}

// NewBudget returns a full Budget.
func NewBudget() *Budget { return &Budget{left: maxBudget, at: time.Now()} }

// limit returns how long a request may take, at most longest.
func (b *Budget) limit(longest time.Duration) time.Duration {
	if b == nil {
		return longest
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.left, b.at = min(b.left+now.Sub(b.at)/budgetShare, maxBudget), now
	return min(max(b.left, minWait), longest)
}

// spend records a wait.
func (b *Budget) spend(waited time.Duration) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = max(b.left-waited, 0)
}
