package stopping

import (
	"fmt"
	"slices"
	"time"
)

// Stats counts the work of a [Sampler].
type Stats struct {
	// Rounds is the number of looks at the target in the time that sampling has Lasted.
	Rounds uint64
	Lasted time.Duration
	// Stops is the number of stops of threads, and Samples that of samples.
	Stops, Samples uint64
	// Median and Longest are times that threads were held, from the last look at which they had not stopped.
	Median, Longest time.Duration
	// Waiting is the number of stops of threads that had begun to wait after the look. Interrupted of them ended a system call
	// with EINTR.
	Waiting, Interrupted uint64
	// Late is the number of threads that did not stop at once.
	Late uint64
	// Traced is the number of attempts at threads with another tracer, and Tracer names the first.
	Traced uint64
	Tracer string
	// Refused are the processes of the target that cannot be traced, and Others is the number of such children.
	Refused []RefusalError
	Others  uint64

	held []time.Duration // of the last stops
}

// RefusalError says why a process cannot be stopped.
type RefusalError struct {
	PID    int
	Reason error
}

// Error implements error.
func (r RefusalError) Error() string { return fmt.Sprintf("process %d: %v", r.PID, r.Reason) }

// Unwrap returns the reason.
func (r RefusalError) Unwrap() error { return r.Reason }

// maxHeld limits the times that are kept for the median.
const maxHeld = 1000

// stopped notes a stop.
func (s *Stats) stopped(held time.Duration) {
	s.Longest = max(s.Longest, held)
	if len(s.held) < maxHeld {
		s.held = append(s.held, held)
	} else {
		s.held[s.Stops%maxHeld] = held
	}
	s.Stops++
}

// clone returns a copy with the median.
func (s *Stats) clone() Stats {
	c := *s
	c.Refused = slices.Clone(s.Refused)
	c.held = nil
	if n := len(s.held); n > 0 {
		sorted := slices.Sorted(slices.Values(s.held))
		c.Median = sorted[n/2]
	}
	return c
}

// Stats returns the statistics so far.
func (s *Sampler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown
}
