package unwinding

import (
	"slices"
	"time"

	"fulgur/internal/capture/loop"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/process"
	"fulgur/internal/unwind/unwindmap"
)

const (
	// patienceForTables is how long a snapshot waits at most, in ns. What it shows
	// must still be known when it is walked.
	patienceForTables = loop.GraceForStacks * 7 / 10
	// snapshotMemory bounds what waits, in bytes: most of a second of 2000 samples
	// of programs that nobody ever saw.
	snapshotMemory = 16 << 20
)

// rewalker is a source.
type rewalker interface {
	Rewalk(s stacks.Snapshot, layout uint64) error
}

// Snapshots are samples of processes that run for a shorter time than it takes to
// make their unwind tables, or for not as long yet.
type Snapshots struct {
	loader *unwindmap.Loader
	of     map[snapshotKey]*snapshotProcess
	memory int // of all, in bytes
}

type snapshotKey struct {
	pid   int
	image uint64
}

// snapshotProcess is a process as it was at its last snapshot.
type snapshotProcess struct {
	maps    []process.Mapping
	past    *unwindmap.Past
	waiting []waitingSnapshot
}

type waitingSnapshot struct {
	stacks.Snapshot
	source rewalker
}

// Add has a snapshot wait for the tables of what its process has mapped.
func (s *Snapshots) Add(source rewalker, record []byte, processes *process.Table) error {
	taken, err := stacks.ParseSnapshot(record)
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
	p.waiting = append(p.waiting, waitingSnapshot{taken, source})
	s.memory += taken.Size()
	return nil
}

// Waiting reports whether any snapshot waits.
func (s *Snapshots) Waiting() bool { return len(s.of) > 0 }

// Rewalk takes the snapshots again whose tables are there, and those that have
// waited for too long by now, or, if there are too many, all.
func (s *Snapshots) Rewalk(now uint64) error {
	tooMany, before := s.memory > snapshotMemory, now-patienceForTables
	for key, p := range s.of {
		take := func(layout uint64) error {
			for _, w := range p.waiting {
				if err := w.source.Rewalk(w.Snapshot, layout); err != nil {
					return err
				}
			}
			return nil
		}
		done, err := p.past.Using(take)
		if err == nil && !done && (tooMany || p.waiting[0].Time < before) {
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
		}
		p.past.Close()
		delete(s.of, key)
	}
	return nil
}

// restForTables is how long the end of sampling sleeps between two looks at the tables.
const restForTables = time.Millisecond

// Finish waits for the tables that are still being made.
func (s *Snapshots) Finish() error {
	for {
		if err := s.Rewalk(monotonic.Now()); err != nil || !s.Waiting() {
			return err
		}
		time.Sleep(restForTables)
	}
}
