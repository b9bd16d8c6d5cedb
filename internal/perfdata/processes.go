package perfdata

import (
	"cmp"
	"container/heap"
	"errors"
	"math/bits"
	"slices"
	"strings"

	"fulgur/internal/bolt"
)

// Mapped is a file that a process mapped.
type Mapped struct {
	// Path is the file's path as seen by the process. It is untrusted.
	Path string
	// BuildID is its build ID in hexadecimal, or "" if it was not recorded.
	BuildID string
}

// Limits on what is kept of a file.
const (
	maxHistory = 1 << 22 // total regions and epochs, about 90 bytes each
	maxFiles   = 1 << 18 // distinct mapped files
	maxPaths   = 1 << 28 // total bytes of their names
	maxPending = 1 << 18 // events waiting to be sorted
)

// errHistory is the error of a reached limit.
var errHistory = errors.New("more mappings than can be kept: choose one binary")

// processes holds the mappings of each process over time.
type processes struct {
	find       func(Mapped) *bolt.Binary
	files      map[Mapped]*bolt.Binary
	paths      int // up to maxPaths
	byPID      map[int32][]epoch
	kernelText uint64      // address of the kernel, 0 if unknown
	kernel     bolt.Layout // of every process if the kernel is profiled, else empty
	kept       int         // up to maxHistory

	// Events of perf.data are nearly sorted. pending holds those that earlier ones may
	// still precede. round is the time of the latest event in the last completed round,
	// and latest the time of the latest event.
	pending       events
	added         uint64 // total number added to pending
	round, latest uint64
	// unsorted means that rounds say nothing: the file has several parts, each from the beginning on.
	unsorted bool
}

// epoch is the layout of a process from a time on. A mapping that replaces none is added
// to the current epoch. It then also applies to earlier samples, but these cannot be in
// it.
type epoch struct {
	since  uint64
	layout bolt.Layout
	shared int // number of regions whose memory the layout may share with that of another epoch
}

// event is a change to a process.
type event struct {
	when uint64
	// order is its index among all events.
	order uint64
	kind  eventKind
	pid   int32

	parent              int32        // of a fork
	start, size, offset uint64       // of a mapping
	binary              *bolt.Binary // mapped; nil for what is not read, which replaces code all the same
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

// binary returns the binary for m, or nil if it is not relevant.
func (ps *processes) binary(m Mapped) (*bolt.Binary, error) {
	b, ok := ps.files[m]
	if ok {
		return b, nil
	}
	ps.paths += len(m.Path) + len(m.BuildID)
	if len(ps.files) >= maxFiles || ps.paths > maxPaths {
		return nil, errors.New("more different mapped files than can be kept")
	}
	// Do not keep the line of text that contains them.
	m = Mapped{Path: strings.Clone(m.Path), BuildID: strings.Clone(m.BuildID)}
	b = ps.find(m)
	ps.files[m] = b
	return b, nil
}

// add adds an event, which may be out of order.
func (ps *processes) add(e event) error {
	e.order = ps.added
	ps.added++
	heap.Push(&ps.pending, e)
	ps.latest = max(ps.latest, e.when)
	switch {
	case ps.unsorted && len(ps.pending) > maxHistory:
		return errHistory
	case ps.unsorted || len(ps.pending) < maxPending:
		return nil
	}
	// No round has ended for long, so apply the older half.
	for len(ps.pending) > maxPending/2 {
		if err := ps.applyNext(); err != nil {
			return err
		}
	}
	return nil
}

// finishRound reports that no more events are older than the latest one of the previous
// round (see perf's FINISHED_ROUND).
func (ps *processes) finishRound() error {
	if ps.unsorted {
		return nil
	}
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

// events is a heap by time, then by file order. A file may end a round after each record,
// so pending events must not be scanned every time.
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
		return ps.mapped(e)
	case eventFork:
		parents := ps.byPID[e.parent]
		if len(parents) == 0 {
			if len(ps.byPID[e.pid]) == 0 {
				return nil
			}
			return ps.begin(e, epoch{}) // the ID is reused
		}
		parent := &parents[len(parents)-1]
		parent.shared = parent.layout.Len()
		return ps.begin(e, epoch{layout: parent.layout, shared: parent.shared})
	default:
		if len(ps.byPID[e.pid]) == 0 {
			return nil
		}
		return ps.begin(e, epoch{})
	}
}

// mapped applies a mapping: of a binary's code, or of anything else in place of it.
func (ps *processes) mapped(e event) error {
	limit := e.start + e.size
	if limit <= e.start {
		return nil
	}
	var region bolt.Region
	code := false
	if e.binary != nil {
		region, code = e.binary.Region(e.start, e.size, e.offset)
	}
	epochs := ps.byPID[e.pid]
	if len(epochs) == 0 {
		if !code {
			return nil
		}
		if err := ps.begin(e, epoch{}); err != nil {
			return err
		}
		epochs = ps.byPID[e.pid]
	}
	last := &epochs[len(epochs)-1]
	replaced, known := false, false
	for old := range last.layout.Over(e.start, limit) {
		replaced = replaced || !code || !old.Same(region)
		known = known || code && old.Same(region) && old.Start <= e.start && limit <= old.End
	}
	if known || !code && !replaced {
		return nil
	}
	after := last.layout.Without(e.start, limit)
	if code {
		after = after.With(region)
	}
	if replaced {
		if err := ps.begin(e, epoch{layout: after, shared: after.Len()}); err != nil {
			return err
		}
		return ps.copied(&ps.byPID[e.pid][len(epochs)])
	}
	last.layout = after
	ps.kept++
	return ps.copied(last)
}

// copied counts what a change of the layout of an epoch has copied of what it shares.
func (ps *processes) copied(e *epoch) error {
	n := min(e.shared, 2*bits.Len(uint(e.layout.Len())))
	e.shared -= n
	ps.kept += n
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

// layout returns the layout of a process at a time.
func (ps *processes) layout(pid int32, when uint64) bolt.Layout {
	if ps.kernel.Len() > 0 {
		return ps.kernel
	}
	epochs := ps.byPID[pid]
	i, found := slices.BinarySearchFunc(epochs, when, func(e epoch, t uint64) int { return cmp.Compare(e.since, t) })
	switch {
	case found:
		// Of several at the same time, use the last.
		for i+1 < len(epochs) && epochs[i+1].since == when {
			i++
		}
		return epochs[i].layout
	case len(epochs) == 0:
		return bolt.Layout{}
	case i == 0:
		return epochs[0].layout
	}
	return epochs[i-1].layout
}

// only returns the only process with mappings. ok is false if there are none or several.
func (ps *processes) only() (pid int32, ok bool) {
	if len(ps.byPID) != 1 {
		return 0, false
	}
	for p := range ps.byPID {
		pid = p
	}
	return pid, true
}
