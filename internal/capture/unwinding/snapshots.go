package unwinding

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/process"
	"fulgur/internal/unwind/unwindmap"
)

const (
	// patienceForTables is the maximum time that a snapshot waits, and waitAtEnd that after
	// the end of sampling, in ns. On a busy machine, making tables takes seconds.
	patienceForTables = uint64(5 * time.Second)
	waitAtEnd         = uint64(2 * time.Second)
	// snapshotMemory limits the waiting snapshots, in bytes. It holds more than a
	// second of 2000 samples of new programs.
	snapshotMemory = 32 << 20
)

// Snapshots holds samples that wait for the unwind tables that their walks need.
type Snapshots struct {
	loader *unwindmap.Loader
	leaves func(pid int) bool
	of     map[snapshotKey]*snapshotProcess
	memory int // total, in bytes
	// walked is the time of the oldest snapshot that the last Rewalk unwound, or 0.
	walked uint64
	// unneeded are snapshots whose memory is for the next ones.
	unneeded []stacks.Snapshot
}

// maxUnneeded limits the snapshots whose memory is kept, up to 69 KiB each.
const maxUnneeded = 8

type snapshotKey struct {
	pid   int
	image uint64
}

// snapshotProcess is a process at the time of its last snapshot.
type snapshotProcess struct {
	maps    []process.Mapping
	past    *unwindmap.Past
	waiting []waitingSnapshot
}

type waitingSnapshot struct {
	stacks.Snapshot
	source source.Rewalker
	since  uint64 // when it was added
	tried  uint64 // the last layout that lacked a table
}

// Add adds a snapshot that waits for the tables of its process's mappings.
func (s *Snapshots) Add(from source.Rewalker, record []byte, processes *process.Table) error {
	var unneeded stacks.Snapshot
	if last := len(s.unneeded) - 1; last >= 0 {
		unneeded, s.unneeded = s.unneeded[last], s.unneeded[:last]
	}
	taken, err := stacks.ParseSnapshot(record, unneeded)
	if err != nil {
		return err
	}
	key := snapshotKey{taken.PID, taken.Image}
	maps := processes.MappingsAt(taken.PID, taken.Time)
	if taken.Open && s.leaves(taken.PID) {
		maps = nil // nobody needs the stack
	}
	p := s.of[key]
	switch {
	case p == nil:
		p = &snapshotProcess{past: s.loader.Past(maps)}
		if s.of == nil {
			s.of = map[snapshotKey]*snapshotProcess{}
		}
		s.of[key] = p
	case !slices.Equal(p.maps, maps):
		p.past.Remap(maps)
	}
	p.maps = maps
	from.CanRewalk() // begins to load it
	p.waiting = append(p.waiting, waitingSnapshot{Snapshot: taken, source: from, since: monotonic.Now()})
	s.memory += taken.Size()
	return nil
}

// Needed returns the time of the oldest snapshot that still needs the mappings of its time, or
// math.MaxUint64 if there is none. A snapshot needs them while it waits and, after Rewalk has
// unwound it, until its stack arrives with the next records.
func (s *Snapshots) Needed() uint64 {
	oldest := cmp.Or(s.walked, math.MaxUint64)
	for _, p := range s.of {
		for _, w := range p.waiting {
			oldest = min(oldest, w.Time)
		}
	}
	return oldest
}

// Waiting reports whether any snapshot is waiting.
func (s *Snapshots) Waiting() bool { return len(s.of) > 0 }

// Rewalk unwinds the snapshots whose tables are ready and those that have waited too
// long, or all if there are too many.
func (s *Snapshots) Rewalk(now uint64) error { return s.rewalk(now - patienceForTables) }

// rewalk unwinds the snapshots whose tables are ready and those that were added before a time, or
// all if there are too many.
func (s *Snapshots) rewalk(before uint64) error {
	tooMany := s.memory > snapshotMemory
	s.walked = 0
	for key, p := range s.of {
		var errs []error
		waiting := p.waiting[:0]
		for _, w := range p.waiting {
			done, err := p.rewalk(&w, tooMany || w.since < before)
			errs = append(errs, err)
			if done {
				s.drop(w.Snapshot)
			} else {
				waiting = append(waiting, w)
			}
		}
		if p.waiting = waiting; len(waiting) == 0 {
			p.past.Close()
			delete(s.of, key)
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// rewalk unwinds a snapshot if its tables are ready or if it is due, and reports whether it counted
// it.
func (p *snapshotProcess) rewalk(w *waitingSnapshot, due bool) (done bool, err error) {
	if !due && !w.source.CanRewalk() {
		return false, nil
	}
	lacks := uint64(0)
	err = p.past.Using(func(layout uint64) (err error) {
		if layout != 0 && layout != w.tried {
			lacks, err = w.source.Rewalk(w.Snapshot, layout)
			done, w.tried = lacks == 0, layout
		}
		if !done && due && err == nil {
			_, err = w.source.Rewalk(w.Snapshot, 0)
			done = true
		}
		return err
	})
	if !done && lacks != 0 {
		p.past.Need(lacks)
	}
	return done, err
}

// drop removes a snapshot that was unwound.
func (s *Snapshots) drop(old stacks.Snapshot) {
	s.memory -= old.Size()
	s.walked = min(cmp.Or(s.walked, old.Time), old.Time)
	if len(s.unneeded) < maxUnneeded {
		s.unneeded = append(s.unneeded, old)
	}
}

// restForTables is the interval of checks for tables at the end of sampling.
const restForTables = time.Millisecond

// Finish waits for the tables that are still being built.
func (s *Snapshots) Finish() error {
	for end := monotonic.Now() + waitAtEnd; ; time.Sleep(restForTables) {
		now := monotonic.Now()
		before := now - patienceForTables
		if now > end {
			before = math.MaxUint64 // all
		}
		if err := s.rewalk(before); err != nil || !s.Waiting() {
			return err
		}
	}
}
