package flame

import (
	"cmp"
	"slices"
)

// chain is a row of the table of chains described at [writeData].
type chain struct{ length, up, samples uint32 }

// chains returns the chains of t. rows are its samples.
func (t *tree) chains(rows []sampleRow) []chain {
	last := make([]bool, len(t.boxes)) // boxes that end their chain
	for _, r := range rows {
		last[r.node] = true
	}
	var path []uint32 // the boxes from the root to the previous one
	for i, b := range t.boxes {
		if int(b.depth) < len(path) { // not the first callee of its caller
			last[path[b.depth-1]], last[i-1] = true, true
		}
		path = append(path[:b.depth], uint32(i))
	}
	last[len(last)-1] = true
	var chains []chain
	var above []int32 // depths of the chain ends on the path from the root
	start, row := 0, 0
	for i, b := range t.boxes {
		if !last[i] {
			continue
		}
		from := t.boxes[start].depth
		c := chain{length: uint32(i + 1 - start)}
		for len(above) > 0 && above[len(above)-1] >= from {
			above = above[:len(above)-1]
			c.up++
		}
		for ; row < len(rows) && rows[row].node == uint32(i); row++ {
			c.samples++
		}
		chains = append(chains, c)
		above = append(above, b.depth)
		start = i + 1
	}
	return chains
}

// numberCalls returns the callees of each frame, most frequent first, and for each box
// its index among them, or the frame itself for the first box.
func numberCalls(t *tree) (callees [][]uint32, calls []uint32) {
	type call struct{ caller, callee uint32 }
	type total struct {
		call
		id, count uint32
	}
	var totals []total
	ids := map[call]uint32{} // indexes of totals
	calls = make([]uint32, 0, len(t.boxes))
	var stack []uint32 // frames from the root to the box
	for _, b := range t.boxes {
		f := t.nodes[b.node].frame
		stack = append(stack[:b.depth], f)
		if b.depth == 0 {
			calls = append(calls, f)
			continue
		}
		c := call{stack[b.depth-1], f}
		id, ok := ids[c]
		if !ok {
			id = uint32(len(totals))
			ids[c] = id
			totals = append(totals, total{call: c, id: id})
		}
		totals[id].count++
		calls = append(calls, id)
	}
	slices.SortFunc(totals, func(a, b total) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.callee, b.callee))
	})
	callees = make([][]uint32, len(t.frames))
	numbers := make([]uint32, len(totals)) // by id
	for _, c := range totals {
		numbers[c.id] = uint32(len(callees[c.caller]))
		callees[c.caller] = append(callees[c.caller], c.callee)
	}
	for i := 1; i < len(calls); i++ {
		calls[i] = numbers[calls[i]]
	}
	return callees, calls
}
