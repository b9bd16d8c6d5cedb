package known

import (
	"errors"
	"time"

	"fulgur/internal/runtimes"
)

// Limits on the time for reading functions from the memory of all processes: maxReading at a
// time, and in the long run 1/readingShare of the elapsed time. Otherwise many processes with
// new functions could stall the profiler.
const (
	maxReading   = time.Second
	readingShare = 4
)

var errBudget = errors.New("no time left for reading functions")

// budget is the time left for reading from the memory of processes. The zero value is a full
// budget. It is not safe for concurrent use.
type budget struct {
	spent time.Duration
	at    time.Time
}

// has reports whether some time is left.
func (b *budget) has() bool {
	now := time.Now()
	b.spent = max(b.spent-now.Sub(b.at)/readingShare, 0)
	b.at = now
	return b.spent < maxReading
}

// limitedMemory is the memory of a process, limited by a budget that processes share.
type limitedMemory struct {
	runtimes.Memory
	budget *budget
}

// Read implements [runtimes.Memory].
func (m *limitedMemory) Read(b []byte, addr uint64) error {
	if !m.budget.has() {
		return errBudget
	}
	begin := time.Now()
	err := m.Memory.Read(b, addr)
	m.budget.spent += time.Since(begin)
	return err
}
