package safeopen

import (
	"time"

	"fulgur/internal/files/budget"
)

// A [Budget] has at most maxBudget, and 1/budgetShare of the time in the long run. But each
// request may take minWait, in which a local file system answers.
const (
	maxBudget   = 500 * time.Millisecond
	budgetShare = 10
	minWait     = time.Millisecond
)

// Budget limits the total time that a loop waits for answers. Otherwise strangers could
// delay it at will by mounting many file systems that do not respond. A nil Budget limits
// only each request.
type Budget struct{ time *budget.Time }

// NewBudget returns a full Budget.
func NewBudget() *Budget { return &Budget{budget.New(maxBudget, budgetShare)} }

// limit returns how long a request may take, at most longest.
func (b *Budget) limit(longest time.Duration) time.Duration {
	if b == nil {
		return longest
	}
	return min(max(b.time.Left(), minWait), longest)
}

// spend records a wait. It leaves no debt, for waits that took long only because the CPUs were busy.
func (b *Budget) spend(waited time.Duration) {
	if b != nil {
		b.time.Spend(min(waited, b.time.Left()))
	}
}
