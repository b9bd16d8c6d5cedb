package safeopen

import (
	"sync"
	"time"
)

// Bounds of a [Budget]: maxBudget at once, and 1/budgetShare of the time in the
// long run, but at least minWait for each question, in which a local file system
// answers. If the CPUs are all busy, a question lasts longer, but its thread is not blocked.
const (
	maxBudget   = 500 * time.Millisecond
	budgetShare = 10
	minWait     = time.Millisecond
)

// Budget bounds the total time that a loop waits for answers. Otherwise strangers could
// delay it at will by mounting many file systems that do not respond. It is safe for
// concurrent use. A nil Budget waits for each answer as long as [Ask] does.
type Budget struct {
	mu   sync.Mutex
	left time.Duration
	at   time.Time // the time of left
}

// NewBudget returns an unused Budget.
func NewBudget() *Budget { return &Budget{left: maxBudget, at: time.Now()} }

// rest returns how long a question may still take that was waited for already: in total, it
// may take at least minWait, and at most longest.
func (p *Budget) rest(longest, waited time.Duration) time.Duration {
	if p == nil {
		return longest - waited
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.left = min(p.left+now.Sub(p.at)/budgetShare, maxBudget)
	p.at = now
	rest := p.left
	if rest < minWait { // it recovers by more than shorter waits take
		rest = minWait - waited
	}
	return min(rest, longest-waited)
}

// spend records a wait.
func (p *Budget) spend(waited time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = max(p.left-waited, 0)
}
