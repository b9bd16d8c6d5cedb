package answer

import (
	"sync"
	"time"
)

// What a [Patience] allows: maxPatience at once, and one part in patienceShare of the
// time in the long run; but leastPatience for each question, in which a local file
// system answers if the CPUs are not all busy.
const (
	maxPatience   = 500 * time.Millisecond
	patienceShare = 10
	leastPatience = time.Millisecond
)

// Patience bounds how long a loop waits for answers in total, since strangers may mount
// any number of file systems that do not answer. Several goroutines may use it. A nil
// Patience waits for each answer as long as [Ask] does.
type Patience struct {
	mu   sync.Mutex
	left time.Duration
	at   time.Time // when left was true
}

// NewPatience returns a patience that is not used up.
func NewPatience() *Patience { return &Patience{left: maxPatience, at: time.Now()} }

// limit returns how long the next question may take, most at most.
func (p *Patience) limit(most time.Duration) time.Duration {
	if p == nil {
		return most
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.left = min(p.left+now.Sub(p.at)/patienceShare, maxPatience)
	p.at = now
	return min(max(p.left, leastPatience), most)
}

// spend notes that somebody waited.
func (p *Patience) spend(waited time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = max(p.left-waited, 0)
}
