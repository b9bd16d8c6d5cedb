package safeopen

import (
	"sync"
	"time"
)

// Bounds of a [Patience]: maxPatience at once, and 1/patienceShare of the time in the
// long run, but at least minPatience for each question, in which a local file system
// answers. If the CPUs are all busy, a question lasts longer, but its thread is not blocked.
const (
	maxPatience   = 500 * time.Millisecond
	patienceShare = 10
	minPatience   = time.Millisecond
)

// Patience bounds the total time that a loop waits for answers. Otherwise strangers could
// delay it at will by mounting many file systems that do not respond. It is safe for
// concurrent use. A nil Patience waits for each answer as long as [Ask] does.
type Patience struct {
	mu   sync.Mutex
	left time.Duration
	at   time.Time // the time of left
}

// NewPatience returns an unused Patience.
func NewPatience() *Patience { return &Patience{left: maxPatience, at: time.Now()} }

// rest returns how long a question may still take that was waited for already: in total, it
// may take at least minPatience, and at most longest.
func (p *Patience) rest(longest, waited time.Duration) time.Duration {
	if p == nil {
		return longest - waited
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.left = min(p.left+now.Sub(p.at)/patienceShare, maxPatience)
	p.at = now
	rest := p.left
	if rest < minPatience { // it recovers by more than shorter waits take
		rest = minPatience - waited
	}
	return min(rest, longest-waited)
}

// spend records a wait.
func (p *Patience) spend(waited time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = max(p.left-waited, 0)
}
