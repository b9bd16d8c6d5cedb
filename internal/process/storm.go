package process

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
)

// Above maxFollowed records in a window, a process's mapping records are no longer
// followed one by one. A dynamic loader that maps 500 libraries, or a JIT that makes each
// function executable separately, stays far below.
const (
	maxFollowed = 1000
	stormWindow = uint64(100 * time.Millisecond)
	// stormPerMapping lengthens the window for each mapping of the process, because reading
	// them from /proc after the window takes time.
	stormPerMapping = uint64(100 * time.Microsecond)
)

// storm counts the mapping records of a process.
type storm struct {
	from, length uint64 // the window
	records      int    // in the window
	skipping     bool   // there were too many
	Storm
}

// Storm is a process that mapped code more often than the table followed. Its records
// crowd out other processes' records from the shared rings.
type Storm struct {
	PID int
	// Comm is the process's name, or empty if it ended before the name was read.
	Comm string
	// Skipped is the number of records that were not followed. PerSecond is the highest
	// rate of records.
	Skipped, PerSecond uint64
}

// String says what the table did not follow. It is safe to print in the sense of package plain.
func (s Storm) String() string {
	name := ""
	if s.Comm != "" {
		name = " (" + plain.Terminal(s.Comm) + ")"
	}
	return fmt.Sprintf("process %d%s mapped code up to %d times a second: %s ignored", s.PID, name, s.PerSecond, plain.Count(s.Skipped, "record"))
}

// Storms returns the processes that mapped code more often than the table followed, worst
// first.
func (t *Table) Storms() []Storm {
	var list []Storm
	for s := range maps.Values(t.storms) {
		if s.Skipped > 0 {
			one := s.Storm
			one.PerSecond = max(one.PerSecond, s.rate(s.from)) // of an open window, at least this
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b Storm) int {
		return cmp.Or(cmp.Compare(b.Skipped, a.Skipped), cmp.Compare(a.PID, b.PID))
	})
	return list
}

// skip reports whether to skip a mapping record of process pid. The process's mappings
// are then read from /proc at the next query after the window.
func (t *Table) skip(pid int, time uint64) bool {
	s := t.storms[pid]
	if s == nil {
		s = &storm{from: time, length: stormWindow, Storm: Storm{PID: pid}}
		t.storms[pid] = s
	}
	if time >= s.from+s.length {
		t.calm(s, time)
	}
	s.records++
	if s.records <= maxFollowed {
		return false
	}
	if !s.skipping && s.Comm == "" {
		s.Comm, _ = procfs.Process(pid).Comm() // the process may be gone
	}
	s.skipping = true
	s.Skipped++
	return true
}

// rate returns the records per second in a window that ends at until, but is at least as long
// as s.length.
func (s *storm) rate(until uint64) uint64 {
	return uint64(s.records) * uint64(time.Second) / max(until-s.from, s.length)
}

// calm starts a new window of s.
func (t *Table) calm(s *storm, now uint64) {
	if !s.skipping {
		s.from, s.length, s.records = now, stormWindow, 0
		return
	}
	s.PerSecond = max(s.PerSecond, s.rate(now))
	s.skipping = false
	i := t.image(s.PID)
	s.from, s.records = now, 0
	s.length = stormWindow + stormPerMapping*uint64(i.live.Len())
	t.invalidate(s.PID, i)
	t.replaced(s.PID)
	t.mapped(s.PID)
}

// calmAll starts a new window for each process whose window is over, and forgets
// processes that are gone and stayed below the limit.
func (t *Table) calmAll(now uint64) {
	for pid, s := range t.storms {
		switch {
		case s.skipping && now >= s.from+s.length:
			t.calm(s, now)
		case !s.skipping && s.Skipped == 0 && now >= s.from+s.length:
			delete(t.storms, pid)
		}
	}
}
