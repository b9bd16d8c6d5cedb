package perfdata

import (
	"cmp"
	"container/heap"
	"errors"
	"slices"
	"strings"

	"fulgur/internal/bolt"
)

// Mapped is a file that a process mapped.
type Mapped struct {
	// Path is the file's path as the process saw it; untrusted text.
	Path string
	// BuildID is its build ID in hexadecimal, "" if that was not recorded.
	BuildID string
}

// Limits on what a file may have kept of it.
const (
	maxLayout  = 1 << 14 // regions of one process
	maxHistory = 1 << 22 // regions and epochs in all, some 40 bytes each
	maxFiles   = 1 << 18 // different mapped files
	maxPaths   = 1 << 28 // bytes of their names
	maxPending = 1 << 18 // events waiting to be sorted
)

// errHistory is a limit reached.
var errHistory = errors.New("more mappings than can be kept: choose one binary")

// processes is what each process had mapped at what time.
type processes struct {
	find  func(Mapped) *bolt.Binary
	files map[Mapped]*bolt.Binary
	paths int // of maxPaths
	byPID map[int32][]epoch
	kept  int // of maxHistory

	// Events of perf.data are nearly sorted: pending holds those that
	// earlier ones may still come for. round is the time of the latest
	// event of the round that ended last, latest that of the latest at all.
	pending       events
	added         uint64 // to pending, ever
	round, latest uint64
}

// epoch is what a process had mapped from a time on. A mapping that replaces
// none is added to the epoch, so that it is there for samples before its time
// too: they cannot be in it.
type epoch struct {
	since  uint64
	layout bolt.Layout
	shared bool // with another process
}

// event is a change to a process.
type event struct {
	when uint64
	// order is its place among all events.
	order uint64
	kind  eventKind
	pid   int32

	parent              int32        // of a fork
	start, size, offset uint64       // of a mapping
	binary              *bolt.Binary // mapped
}

type eventKind byte

const (
	eventMap eventKind = iota
	eventFork
	eventExec
)

func newProcesses(find func(Mapped) *bolt.Binary) *processes {
	return &processes{find: find, files: make(map[Mapped]*bolt.Binary), byPID: make(map[int32][]epoch)}
}

// binary returns the binary that m is, or nil if it is none of interest.
func (ps *processes) binary(m Mapped) (*bolt.Binary, error) {
	b, ok := ps.files[m]
	if ok {
		return b, nil
	}
	ps.paths += len(m.Path) + len(m.BuildID)
	if len(ps.files) >= maxFiles || ps.paths > maxPaths {
		return nil, errors.New("more different mapped files than can be kept")
	}
	// The line of text that they are parts of must not be kept.
	m = Mapped{Path: strings.Clone(m.Path), BuildID: strings.Clone(m.BuildID)}
	b = ps.find(m)
	ps.files[m] = b
	return b, nil
}

// add takes in an event that may be out of order.
func (ps *processes) add(e event) error {
	e.order = ps.added
	ps.added++
	heap.Push(&ps.pending, e)
	ps.latest = max(ps.latest, e.when)
	if len(ps.pending) < maxPending {
		return nil
	}
	// No round has ended for long: the older half will have to do.
	for len(ps.pending) > maxPending/2 {
		if err := ps.applyNext(); err != nil {
			return err
		}
	}
	return nil
}

// finishRound tells that no event is to come that is older than the latest
// one of the round before (see perf's FINISHED_ROUND).
func (ps *processes) finishRound() error {
	for len(ps.pending) > 0 && ps.pending[0].when <= ps.round {
		if err := ps.applyNext(); err != nil {
			return err
		}
	}
	ps.round = ps.latest
	return nil
}

// finish applies all events.
func (ps *processes) finish() error {
	for len(ps.pending) > 0 {
		if err := ps.applyNext(); err != nil {
			return err
		}
	}
	return nil
}

// applyNext applies the oldest pending event.
func (ps *processes) applyNext() error { return ps.applyOne(heap.Pop(&ps.pending).(event)) }

// events are a heap by time, and of the same time in the order of the file. A file
// may end a round after each of its records: what has to wait must not be looked at
// every time.
type events []event

func (es events) Len() int { return len(es) }
func (es events) Less(a, b int) bool {
	return es[a].when < es[b].when || es[a].when == es[b].when && es[a].order < es[b].order
}
func (es events) Swap(a, b int) { es[a], es[b] = es[b], es[a] }
func (es *events) Push(x any)   { *es = append(*es, x.(event)) }
func (es *events) Pop() any {
	last := (*es)[len(*es)-1]
	*es = (*es)[:len(*es)-1]
	return last
}

func (ps *processes) applyOne(e event) error {
	switch e.kind {
	case eventMap:
		if region, ok := e.binary.Region(e.start, e.size, e.offset); ok {
			return ps.mapRegion(e, region)
		}
		return nil
	case eventFork:
		parents := ps.byPID[e.parent]
		if len(parents) == 0 {
			if len(ps.byPID[e.pid]) == 0 {
				return nil
			}
			return ps.begin(e, epoch{}) // the number is used again
		}
		parent := &parents[len(parents)-1]
		parent.shared = true
		return ps.begin(e, epoch{layout: parent.layout, shared: true})
	default:
		if len(ps.byPID[e.pid]) == 0 {
			return nil
		}
		return ps.begin(e, epoch{})
	}
}

// mapRegion adds a region to what the process has mapped.
func (ps *processes) mapRegion(e event, region bolt.Region) error {
	epochs := ps.byPID[e.pid]
	if len(epochs) == 0 {
		if err := ps.begin(e, epoch{}); err != nil {
			return err
		}
		epochs = ps.byPID[e.pid]
	}
	last := &epochs[len(epochs)-1]
	if len(last.layout) >= maxLayout {
		return errHistory
	}
	old := last.layout
	if last.shared {
		old = slices.Clone(old)
		ps.kept += len(old)
	}
	after, replaced := old.With(region)
	if replaced {
		ps.kept += len(after)
		return ps.begin(e, epoch{layout: after})
	}
	ps.kept++
	last.layout, last.shared = after, false
	return ps.checkKept()
}

// begin begins an epoch of a process.
func (ps *processes) begin(e event, next epoch) error {
	next.since = e.when
	ps.kept++
	ps.byPID[e.pid] = append(ps.byPID[e.pid], next)
	return ps.checkKept()
}

func (ps *processes) checkKept() error {
	if ps.kept > maxHistory {
		return errHistory
	}
	return nil
}

// layout returns what a process had mapped at a time.
func (ps *processes) layout(pid int32, when uint64) bolt.Layout {
	epochs := ps.byPID[pid]
	i, found := slices.BinarySearchFunc(epochs, when, func(e epoch, t uint64) int { return cmp.Compare(e.since, t) })
	switch {
	case found:
		// Of several at the same time the last.
		for i+1 < len(epochs) && epochs[i+1].since == when {
			i++
		}
		return epochs[i].layout
	case len(epochs) == 0:
		return nil
	case i == 0:
		return epochs[0].layout
	}
	return epochs[i-1].layout
}

// only returns the process that has mapped anything, and whether there is one
// and no other.
func (ps *processes) only() (pid int32, ok bool) {
	if len(ps.byPID) != 1 {
		return 0, false
	}
	for p := range ps.byPID {
		pid = p
	}
	return pid, true
}
