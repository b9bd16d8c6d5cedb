package known

import (
	"errors"
	"time"

	"fulgur/internal/files/budget"
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

// limitedMemory is the memory of a process, limited by a budget that processes share.
type limitedMemory struct {
	runtimes.Memory
	budget *budget.Time
}

// Read implements [runtimes.Memory].
func (m *limitedMemory) Read(b []byte, addr uint64) error {
	if m.budget.Left() == 0 {
		return errBudget
	}
	begin := time.Now()
	err := m.Memory.Read(b, addr)
	m.budget.Spend(time.Since(begin))
	return err
}
