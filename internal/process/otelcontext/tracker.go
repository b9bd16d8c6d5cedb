package otelcontext

import (
	"errors"
	"time"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/process"
)

const (
	// Searches for the context of a process that has none are first firstInterval apart. The
	// interval doubles with each search, up to maxInterval.
	firstInterval, maxInterval = 10 * time.Second, 10 * time.Minute
	// maxSearch limits the time for searches in one call of [Tracker.Attributes]. The first
	// search always runs; after the limit, searches are postponed to the next call.
	maxSearch = 50 * time.Millisecond
	// maxTotal limits the attributes that one call of [Tracker.Attributes] returns, in bytes.
	maxTotal = 1 << 20
)

// Tracker remembers the contexts of processes. It is not safe for concurrent use.
type Tracker struct {
	known  map[int]*known
	budget *safeopen.Budget
}

// known is the state of a process.
type known struct {
	start     uint64 // of the process, see [procfs.Stat]
	address   uint64 // of its context, 0 if none was found
	published uint64 // when the content was published
	content
	next     time.Time // when to search again
	interval time.Duration
}

// NewTracker returns a tracker that knows nothing yet.
func NewTracker() *Tracker {
	return &Tracker{known: map[int]*known{}, budget: safeopen.NewBudget()}
}

// Attributes returns the attributes that running processes publish now, by process, until
// their total size reaches a limit. It forgets the processes that are not in pids.
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
		memory := process.NewMemory(pid, t.budget)
		if k.address != 0 {
			k.update(memory)
		}
		if now := time.Now(); k.address == 0 && !now.Before(k.next) && (!searched || now.Sub(began) < maxSearch) {
			searched = true
			k.search(pid, memory, t.budget, now)
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

// update reads a known context again if it has changed. If the context is no longer valid,
// the process publishes nothing.
func (k *known) update(memory reader) {
	published, is, err := read(memory, k.address, k.published)
	switch {
	case errors.Is(err, errWriting): // the old attributes apply until it is complete
	case err != nil:
		k.address, k.published, k.content = 0, 0, content{}
	case published != k.published:
		k.published, k.content = published, is
	}
}

// mappingNames lists the prefixes of the names of mappings that may hold a context: a memfd,
// or anonymous memory that is shared or private.
var mappingNames = []string{"/memfd:" + signature, "[anon_shmem:" + signature + "]", "[anon:" + signature + "]"}

// maxCandidates limits the mappings that a search looks at.
const maxCandidates = 4

// search looks for the context of a process. Reading the process's list of mappings, or its
// memory, may have to wait for a file system that hangs.
func (k *known) search(pid int, memory reader, budget *safeopen.Budget, now time.Time) {
	k.interval = min(max(2*k.interval, firstInterval), maxInterval)
	k.next = now.Add(k.interval)
	candidates, err := process.Read(budget, pid, func(t procfs.Task) ([]procfs.Map, error) { return t.MapsNamed(mappingNames...) })
	if err != nil {
		return // it has ended, belongs to another user, or does not respond
	}
	for _, m := range candidates[:min(len(candidates), maxCandidates)] {
		k.address = m.Start
		if k.update(memory); k.address != 0 {
			return
		}
	}
}
