package perfdata

import (
	"cmp"
	"errors"
	"slices"

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
	maxPending = 1 << 18 // events waiting to be sorted
)

// errHistory is a limit reached.
var errHistory = errors.New("more mappings than can be kept: choose one binary")

// processes is what each process had mapped at what time.
type processes struct {
	find  func(Mapped) *bolt.Binary
	files map[Mapped]*bolt.Binary
	byPID map[int32][]epoch
	kept  int // of maxHistory

	// Events of perf.data are nearly sorted: pending holds those that
	// earlier ones may still come for. round is the time of the latest
	// event of the round that ended last, latest that of the latest at all.
	pending       []event
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
	kind eventKind
	pid  int32

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
	if len(ps.files) >= maxFiles {
		return nil, errors.New("more different mapped files than can be kept")
	}
	b = ps.find(m)
	ps.files[m] = b
	return b, nil
}

// add takes in an event that may be out of order.
func (ps *processes) add(e event) error {
	ps.pending = append(ps.pending, e)
	ps.latest = max(ps.latest, e.when)
	if len(ps.pending) < maxPending {
		return nil
	}
	// No round has ended for long: the older half will have to do.
	ps.sort()
	return ps.apply(len(ps.pending) / 2)
}

// finishRound tells that no event is to come that is older than the latest
// one of the round before (see perf's FINISHED_ROUND).
func (ps *processes) finishRound() error {
	ps.sort()
	n, _ := slices.BinarySearchFunc(ps.pending, ps.round, func(e event, t uint64) int {
		return cmp.Or(cmp.Compare(e.when, t), -1) // those at t too
	})
	ps.round = ps.latest
	return ps.apply(n)
}

// finish applies all events.
func (ps *processes) finish() error {
	ps.sort()
	return ps.apply(len(ps.pending))
}

// sort sorts the pending events by time, and those of the same time in the
// order of the file.
func (ps *processes) sort() {
	slices.SortStableFunc(ps.pending, func(a, b event) int { return cmp.Compare(a.when, b.when) })
}

// apply applies the first n pending events.
func (ps *processes) apply(n int) error {
	for _, e := range ps.pending[:n] {
		if err := ps.applyOne(e); err != nil {
			return err
		}
	}
	ps.pending = slices.Delete(ps.pending, 0, n)
	return nil
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
