package unwinding

import (
	"cmp"
	"math"
	"slices"
	"time"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/process"
	"fulgur/internal/unwind/unwindmap"
)

const (
	// patienceForTables is the maximum time that a snapshot waits, and patienceAtEnd that after
	// the end of sampling, in ns. On a busy machine, making tables takes seconds.
	patienceForTables = uint64(5 * time.Second)
	patienceAtEnd     = uint64(700 * time.Millisecond)
	// snapshotMemory limits the waiting snapshots, in bytes. It holds more than a
	// second of 2000 samples of new programs.
	snapshotMemory = 32 << 20
)

// rewalker is a source.
type rewalker interface {
	CanRewalk() bool
	Rewalk(s stacks.Snapshot, layout uint64) error
}

// Snapshots holds samples of processes whose unwind tables are still being built,
// because the processes have just started.
type Snapshots struct {
	loader *unwindmap.Loader
	of     map[snapshotKey]*snapshotProcess
	memory int // total, in bytes
	// walked is the time of the oldest snapshot that the last Rewalk unwound, or 0.
	walked uint64
	// unneeded are snapshots whose memory is for the next ones.
	unneeded []stacks.Snapshot
}

// maxUnneeded limits the snapshots whose memory is kept, up to 34 KiB each.
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
	source rewalker
	since  uint64 // when it was added
}

// Add adds a snapshot that waits for the tables of its process's mappings.
func (s *Snapshots) Add(source rewalker, record []byte, processes *process.Table) error {
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
	source.CanRewalk() // begins to load it
	p.waiting = append(p.waiting, waitingSnapshot{taken, source, monotonic.Now()})
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
		due := tooMany || p.waiting[0].since < before
		if !due && slices.ContainsFunc(p.waiting, func(w waitingSnapshot) bool { return !w.source.CanRewalk() }) {
			continue
		}
		take := func(layout uint64) error {
			for _, w := range p.waiting {
				if err := w.source.Rewalk(w.Snapshot, layout); err != nil {
					return err
				}
			}
			return nil
		}
		done, err := p.past.Using(take)
		if err == nil && !done && due {
			done, err = true, take(0)
		}
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		for _, w := range p.waiting {
			s.memory -= w.Size()
			s.walked = min(cmp.Or(s.walked, w.Time), w.Time)
			if len(s.unneeded) < maxUnneeded {
				s.unneeded = append(s.unneeded, w.Snapshot)
			}
		}
		p.past.Close()
		delete(s.of, key)
	}
	return nil
}

// restForTables is the interval of checks for tables at the end of sampling.
const restForTables = time.Millisecond

// Finish waits for the tables that are still being built.
func (s *Snapshots) Finish() error {
	for end := monotonic.Now() + patienceAtEnd; ; time.Sleep(restForTables) {
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
