package flame

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"io"
	"slices"

	"fulgur/internal/profile"
)

// writeData writes the page's data: the length of the header as four bytes, little
// endian, the header as JSON, and the columns of these tables one after the other:
//
//	calls    count: for each of the header's frames, how many frames it calls;
//	         callee: the frames that these are, of each caller the most
//	         frequent first
//	chains   length: how many nodes the chain has, which follow the nodes of
//	         the chain before;
//	         up: by how many chains it stands closer to the root than a callee
//	         of the chain before would;
//	         samples: how many rows of samples end on its last node
//	nodes    call: of the root, its frame; of others, the index of their frame
//	         among the callees of their caller's
//	samples  task: an index of the header's tasks;
//	         a column for each value type, and then, if profiles are
//	         compared, one for each value type of the base. Their entries are
//	         divided by the scale that the header has for the column, and
//	         "zigzag": 0, -1, 1, -2… are 0, 1, 2, 3…
//
//	times    count: for each of the samples, how many entries it has;
//	         step: the time in steps since the sample's previous entry;
//	         weight: its part of the sample's weight, divided by the scale;
//	         thread: for each of the samples, the index of the header's threads;
//	         event: what it is a sample of: 0 time on the CPU, 1 off the CPU, 2 disk
//	         requests, 3 page faults, 4 and more hits of events
//
// Only recordings have times.
//
// A chain is a run of nodes in which each is the only callee of the previous one and
// samples end only on the last. Its nodes have all their samples in common, and in a
// large profile nearly all nodes are in chains of several nodes. Nodes are in preorder,
// and so are chains.
//
// All entries are varints as in [binary.AppendUvarint]. Columns of similar numbers
// compress well, and calls are small because a function calls few others, some of them
// nearly always.
func writeData(w io.Writer, h header, t *tree) error {
	rows, of := sampleRows(t)
	var table timesTable
	if t.timed != nil {
		table = t.timed.table(rows, of)
		h.Times = &table.header
	}
	chains := t.chains(rows)
	callees, calls := numberCalls(t)
	h.Chains, h.Samples = len(chains), len(rows)
	for i, r := range rows {
		if r.idle {
			h.Idle = append(h.Idle, i)
		}
	}
	columns := len(h.Values) * len(t.profiles)
	for c := range columns {
		h.Scales = append(h.Scales, scale(rows, c))
	}
	head, err := json.Marshal(h)
	if err != nil {
		return err
	}
	out := columnWriter{w: bufio.NewWriterSize(w, 64<<10)}
	out.w.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(head))))
	out.w.Write(head)
	for _, of := range callees {
		out.uint(uint64(len(of)))
	}
	for _, of := range callees {
		for _, f := range of {
			out.uint(uint64(f))
		}
	}
	for _, c := range chains {
		out.uint(uint64(c.length))
	}
	for _, c := range chains {
		out.uint(uint64(c.up))
	}
	for _, c := range chains {
		out.uint(uint64(c.samples))
	}
	for _, n := range calls {
		out.uint(uint64(n))
	}
	for _, r := range rows {
		out.uint(uint64(r.task))
	}
	for c, scale := range h.Scales {
		for _, r := range rows {
			out.int(r.values[c] / scale)
		}
	}
	if t.timed != nil {
		table.write(&out)
	}
	return out.w.Flush()
}

// sampleRow combines the samples of a task with the same leaf node and, with times, of the
// same thread and kind. Those of idle threads are separate.
type sampleRow struct {
	node, task uint32
	idle       bool
	timedRow
	values []int64
}

// timedRow distinguishes rows of a page with times.
type timedRow struct {
	thread profile.ThreadID
	kind   eventKind
}

// sampleRows returns the samples of t by node and task, and the row of each sample of the
// displayed profile.
func sampleRows(t *tree) (rows []sampleRow, of []uint32) {
	type place struct {
		node, task, profile, sample uint32
		idle                        bool
		timedRow
	}
	var places []place
	for i, p := range t.profiles {
		taskIDs := make([]uint32, len(p.Tasks))
		for id, task := range tasksOf(p) {
			at, _ := slices.BinarySearchFunc(t.tasks, task, compareTasks)
			taskIDs[id] = uint32(at)
		}
		for s := range p.Samples {
			at := place{t.row(t.ends[i][s]), taskIDs[p.Samples[s].Task], uint32(i), uint32(s), len(t.idle) > 0 && t.idle[s], timedRow{}}
			if t.timed != nil {
				at.timedRow = timedRow{t.timed.threads[s], t.timed.kinds[s]}
			}
			places = append(places, at)
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.task, b.task), cmp.Compare(a.thread, b.thread), cmp.Compare(a.kind, b.kind), compareIdle(a.idle, b.idle))
	})
	types := len(t.profiles[0].ValueTypes)
	columns := types * len(t.profiles)
	store := make([]int64, columns*len(places)) // one allocation for all rows
	of = make([]uint32, len(t.profiles[0].Samples))
	for _, at := range places {
		if n := len(rows); n == 0 || rows[n-1].node != at.node || rows[n-1].task != at.task || rows[n-1].timedRow != at.timedRow || rows[n-1].idle != at.idle {
			rows = append(rows, sampleRow{at.node, at.task, at.idle, at.timedRow, store[:columns:columns]})
			store = store[columns:]
		}
		sums := rows[len(rows)-1].values[types*int(at.profile):]
		for v, add := range t.profiles[at.profile].Samples[at.sample].Values {
			sums[v] += add
		}
		if at.profile == 0 {
			of[at.sample] = uint32(len(rows) - 1)
		}
	}
	return rows, of
}

// compareIdle orders false before true.
func compareIdle(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// scale returns the greatest common divisor of column c, so that samples weighted by
// their period take no more space than counts.
func scale(rows []sampleRow, c int) int64 {
	var divisor int64
	for _, r := range rows {
		for a := r.values[c]; a != 0; {
			divisor, a = a, divisor%a
		}
	}
	return max(divisor, -divisor, 1)
}

// columnWriter writes numbers. Errors stick to w and are returned by its Flush.
type columnWriter struct {
	w   *bufio.Writer
	buf [binary.MaxVarintLen64]byte
}

func (c *columnWriter) uint(v uint64) { c.w.Write(binary.AppendUvarint(c.buf[:0], v)) }
func (c *columnWriter) int(v int64)   { c.w.Write(binary.AppendVarint(c.buf[:0], v)) }
