package flame

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"io"
	"slices"
)

// writeData writes the page's data: the length of the header as four bytes,
// little endian, the header as JSON, and the columns of three tables, one after
// the other:
//
//	nodes    up: by how many levels the node stands closer to the root than
//	         a child of the node before it would. Nodes are in preorder,
//	         so that a node with its descendants is a run of rows;
//	         call: of the root, its index in the header's frames. Of
//	         others n, for the nth frame that was met on their caller's
//	         frame, or 0 for one more. A function calls few others, which
//	         makes these numbers small
//	calls    frame: an index of the header's frames, for each call that
//	         is 0, in their order
//	samples  node: the difference to the row before;
//	         task: an index of the header's tasks;
//	         a column for each value type, and then, if profiles are
//	         compared, one for each value type of the base. Their entries are
//	         divided by the scale that the header has for the column, and
//	         "zigzag": 0, -1, 1, -2… are 0, 1, 2, 3…
//
// All entries are varints as in [binary.AppendUvarint]. Columns of one sort of
// number are what makes them short when compressed.
func writeData(w io.Writer, h header, t *tree) error {
	rows := sampleRows(t)
	calls, unmet := numberCalls(t)
	h.Calls, h.Samples = len(unmet), len(rows)
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
	before := int32(-1)
	for _, b := range t.boxes {
		out.uint(uint64(before + 1 - b.depth))
		before = b.depth
	}
	for _, n := range calls {
		out.uint(uint64(n))
	}
	for _, f := range unmet {
		out.uint(uint64(f))
	}
	last := uint32(0)
	for _, r := range rows {
		out.uint(uint64(r.node - last))
		last = r.node
	}
	for _, r := range rows {
		out.uint(uint64(r.task))
	}
	for c, scale := range h.Scales {
		for _, r := range rows {
			out.int(r.values[c] / scale)
		}
	}
	return out.w.Flush()
}

// numberCalls returns the column of the nodes' calls, and that of the calls
// that are met first.
func numberCalls(t *tree) (calls, unmet []uint32) {
	type call struct{ caller, callee uint32 }
	numbers := map[call]uint32{}
	callees := make([]uint32, len(t.frames)) // how many each caller has
	var stack []uint32                       // the frames from the root to the node
	calls = make([]uint32, 0, len(t.boxes))
	for _, b := range t.boxes {
		f := t.nodes[b.node].frame
		stack = append(stack[:b.depth], f)
		if b.depth == 0 {
			calls = append(calls, f)
			continue
		}
		c := call{stack[b.depth-1], f}
		calls = append(calls, numbers[c])
		if numbers[c] == 0 {
			unmet = append(unmet, f)
			callees[c.caller]++
			numbers[c] = callees[c.caller]
		}
	}
	return calls, unmet
}

// sampleRow is the samples of one task that end at one node.
type sampleRow struct {
	node, task uint32
	values     []int64
}

// sampleRows returns the samples of t ordered by node and task.
func sampleRows(t *tree) []sampleRow {
	type place struct{ node, task, profile, sample uint32 }
	var places []place
	for i, p := range t.profiles {
		taskIDs := make([]uint32, len(p.Tasks))
		for id, task := range p.Tasks {
			at, _ := slices.BinarySearchFunc(t.tasks, task, compareTasks)
			taskIDs[id] = uint32(at)
		}
		for s := range p.Samples {
			places = append(places, place{t.row(t.ends[i][s]), taskIDs[p.Samples[s].Task], uint32(i), uint32(s)})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.task, b.task))
	})
	types := len(t.profiles[0].ValueTypes)
	columns := types * len(t.profiles)
	store := make([]int64, columns*len(places)) // one allocation for all rows
	var rows []sampleRow
	for _, at := range places {
		if n := len(rows); n == 0 || rows[n-1].node != at.node || rows[n-1].task != at.task {
			rows = append(rows, sampleRow{at.node, at.task, store[:columns:columns]})
			store = store[columns:]
		}
		sums := rows[len(rows)-1].values[types*int(at.profile):]
		for v, add := range t.profiles[at.profile].Samples[at.sample].Values {
			sums[v] += add
		}
	}
	return rows
}

// scale returns the greatest number that divides all of column c, so that
// samples weighted by their period take no more than samples that are counted.
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
