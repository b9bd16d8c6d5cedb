package naming

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/process"
	"fulgur/internal/symbols/jitdump"
	"fulgur/internal/symbols/symbolize"
)

// Snapshots are copies of the files in which the JIT compilers of a store describe their
// code.
type Snapshots struct {
	perfMaps map[*process.PerfMap]*process.PerfMap
	jitDumps map[*process.JITDumps]process.JITTables
}

// SnapshotsOf returns copies of a store's perf maps and jitdump files, so that they can be
// read while the originals grow.
func SnapshotsOf(store *stacks.Store) *Snapshots {
	taken := &Snapshots{map[*process.PerfMap]*process.PerfMap{}, map[*process.JITDumps]process.JITTables{}}
	for _, code := range store.Codes {
		if m := code.PerfMap; m != nil {
			taken.perfMaps[m] = m.Snapshot()
		}
		if d := code.JITDumps; d != nil {
			taken.jitDumps[d] = d.Tables()
		}
	}
	return taken
}

// perfMap returns the copy of m, or m if there is none.
func (n *Names) perfMap(m *process.PerfMap) *process.PerfMap {
	if n.Snapshots == nil {
		return m
	}
	return n.Snapshots.perfMaps[m]
}

// readDumps takes the contents read so far of the store's jitdump files.
func (n *Names) readDumps() {
	n.dumps = map[*process.JITDumps]process.JITTables{}
	for _, code := range n.store.Codes {
		d := code.JITDumps
		switch _, known := n.dumps[d]; {
		case d == nil || known:
		case n.Snapshots != nil:
			n.dumps[d] = n.Snapshots.jitDumps[d]
		default:
			n.dumps[d] = d.Tables()
		}
	}
}

// lookUpJIT looks up frames of JIT code: in jitdump files, then in the perf map, and the
// frames that it lacks in the map that the process wrote later.
func (n *Names) lookUpJIT(code stacks.Code, frames []stacks.FrameID) error {
	var errs []error
	unnamed := func(id stacks.FrameID) bool { return len(n.found[id]) == 0 }
	if code.JITDumps != nil {
		if err := n.lookUpDumps(n.dumps[code.JITDumps], frames); err != nil {
			errs = append(errs, fmt.Errorf("process %d: %w", code.PID, err))
		}
		frames = slices.DeleteFunc(slices.Clone(frames), func(id stacks.FrameID) bool { return !unnamed(id) })
	}
	for m := n.perfMap(code.PerfMap); m != nil && len(frames) > 0; m = m.Next() {
		r, size, err := m.ReaderAt()
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, process.ErrFileGone):
			err = nil // few programs with a JIT compiler write one
		case err == nil:
			err = errors.Join(n.lookUp(symbolize.OpenPerfMap(r, size), frames, running), m.Incomplete())
			if err != nil {
				err = fmt.Errorf("process %d: %w", m.PID(), err)
			}
		}
		errs = append(errs, err)
		frames = slices.DeleteFunc(frames, func(id stacks.FrameID) bool { return !unnamed(id) })
	}
	return errors.Join(errs...)
}

// lookUpDumps looks up frames in jitdump files, at the times when they were
// first seen.
func (n *Names) lookUpDumps(t process.JITTables, frames []stacks.FrameID) error {
	type at struct {
		frame stacks.FrameID
		query jitdump.Query
	}
	all := make([]at, len(frames))
	for i, id := range frames {
		f := n.store.Frames[id]
		all[i] = at{id, jitdump.Query{Address: f.Call(), Time: n.store.Seen[f]}}
	}
	slices.SortFunc(all, func(a, b at) int { return cmp.Compare(a.query.Address, b.query.Address) })
	queries := make([]jitdump.Query, len(all))
	for i, a := range all {
		queries[i] = a.query
	}
	found, err := jitdump.Lookup(t.Tables, queries, n.options)
	for i, a := range all {
		n.found[a.frame] = found[i]
	}
	return errors.Join(err, t.Incomplete)
}
