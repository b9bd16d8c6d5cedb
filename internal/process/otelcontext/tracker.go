package otelcontext

import (
	"errors"
	"time"

	"fulgur/internal/files/answer"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/process"
)

const (
	// firstRest and maxRest are the first and the longest time between two searches for the
	// context of a process that has none. It doubles with each search.
	firstRest, maxRest = 10 * time.Second, 10 * time.Minute
	// maxSearch limits the time of the searches of one call of [Tracker.Attributes], of which
	// there is at least one. Others are postponed to the next call.
	maxSearch = 50 * time.Millisecond
	// maxTotal limits the attributes that one call of [Tracker.Attributes] returns, in bytes.
	maxTotal = 1 << 20
)

// Tracker remembers the contexts of processes. It is not safe for concurrent use.
type Tracker struct {
	known    map[int]*known
	patience *answer.Patience
}

// known is what is known of a process.
type known struct {
	start      uint64 // of the process, see [procfs.Stat]
	address    uint64 // of its context, 0 if none was found
	published  uint64 // when the attributes were published
	attributes []Attribute
	next       time.Time // when to search again
	rest       time.Duration
}

// NewTracker returns a tracker that knows nothing yet.
func NewTracker() *Tracker {
	return &Tracker{known: map[int]*known{}, patience: answer.NewPatience()}
}

// Attributes returns the attributes that running processes publish now, by process, for the
// first ones up to a limit. It forgets all other processes.
func (t *Tracker) Attributes(pids []int) map[int][]Attribute {
	all, kept := map[int][]Attribute{}, map[int]*known{}
	began, total, searched := time.Now(), 0, false
	for _, pid := range pids {
		stat, err := procfs.Process(pid).Stat()
		if err != nil || stat.KernelThread {
			continue
		}
		k := t.known[pid]
		if k == nil || k.start != stat.Start {
			k = &known{start: stat.Start}
		}
		kept[pid] = k
		memory := process.NewMemory(pid, t.patience)
		if k.address != 0 {
			k.update(memory)
		}
		if now := time.Now(); k.address == 0 && !now.Before(k.next) && (!searched || now.Sub(began) < maxSearch) {
			searched = true
			k.search(pid, memory, t.patience, now)
		}
		size := 0
		for _, a := range k.attributes {
			size += len(a.Key)
			if text, ok := a.Value.(string); ok {
				size += len(text)
			}
		}
		if size > 0 && total+size <= maxTotal {
			total += size
			all[pid] = k.attributes
		}
	}
	t.known = kept
	return all
}

// update reads a known context again if it has changed. Without a valid one, the process has no
// attributes.
func (k *known) update(memory reader) {
	published, attributes, err := read(memory, k.address, k.published)
	switch {
	case errors.Is(err, errWriting): // the old attributes apply until it is complete
	case err != nil:
		k.address, k.published, k.attributes = 0, 0, nil
	case published != k.published:
		k.published, k.attributes = published, attributes
	}
}

// mappingNames are how the names of mappings begin that may have a context: a memfd, or anonymous
// memory that is shared or private.
var mappingNames = []string{"/memfd:" + signature, "[anon_shmem:" + signature + "]", "[anon:" + signature + "]"}

// maxCandidates limits the mappings that a search looks at.
const maxCandidates = 4

// search looks for the context of a process. Its list of mappings may have to wait for a file
// system that hangs, like its memory.
func (k *known) search(pid int, memory reader, patience *answer.Patience, now time.Time) {
	k.rest = min(max(2*k.rest, firstRest), maxRest)
	k.next = now.Add(k.rest)
	maps := answer.Place{Near: procfs.Path(pid, "maps")}
	candidates, err := answer.AskPatiently(patience, maps, func(*answer.Visit) ([]procfs.Map, error) {
		return procfs.Process(pid).MapsNamed(mappingNames...)
	}, func([]procfs.Map, error) {})
	if err != nil {
		return // it has ended, belongs to another user, or does not answer
	}
	for _, m := range candidates[:min(len(candidates), maxCandidates)] {
		k.address = m.Start
		if k.update(memory); k.address != 0 {
			return
		}
	}
}
