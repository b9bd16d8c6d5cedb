package top

import (
	"cmp"
	"slices"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// kind is the kind of a box, which chooses its color.
type kind uint8

const (
	rootBox kind = iota
	processBox
	userBox
	inlinedBox
	kernelBox
	jitBox
	unnamedBox
	noteBox
)

// kindOf returns the kind of a frame's box.
func kindOf(p *profile.Profile, id profile.FrameID) kind {
	f := p.Frames[id]
	switch {
	case f.Kind == profile.KindMarker:
		return noteBox
	case !p.Named(id):
		return unnamedBox
	case f.Kind == profile.KindKernel:
		return kernelBox
	case f.Kind == profile.KindJIT:
		return jitBox
	case f.Inlined:
		return inlinedBox
	}
	return userBox
}

// node is a box of the flame graph: a function on top of its caller.
type node struct {
	function
	kind        kind
	parent      int // the root's is itself
	depth       int // rows between the box and the root's
	total, self int64
	children    []int // sorted by name
}

// graph is a flame graph. nodes[0] is the root, and callers precede their callees.
type graph struct{ nodes []node }

// edge identifies a node.
type edge struct {
	parent int
	function
}

// graph returns the flame graph of the included samples. The first row has processes, or groups with
// their processes in the second row.
func (t tables) graph() *graph {
	g := &graph{[]node{{function: function{name: "all"}}}}
	known := map[edge]int{}
	push := func(parent int, f function, k kind) int {
		id, ok := known[edge{parent, f}]
		if !ok {
			id = len(g.nodes)
			known[edge{parent, f}] = id
			g.nodes = append(g.nodes, node{function: f, kind: k, parent: parent, depth: g.nodes[parent].depth + 1})
		}
		return id
	}
	type place struct {
		process int
		stack   profile.StackID
	}
	var path []profile.StackID
	for _, w := range t.windows {
		pushed := map[place]int{}
		for _, s := range w.Samples {
			if !t.only.holds(w.processes[s.Task]) {
				continue
			}
			process := 0
			if group := w.processes[s.Task].group; group != "" {
				process = push(0, function{name: group}, processBox)
			}
			process = push(process, function{name: plain.Terminal(w.Tasks[s.Task].Comm)}, processBox)
			at, stack := process, s.Stack
			for path = path[:0]; stack != 0; stack = w.Stacks[stack].Parent {
				if id, ok := pushed[place{process, stack}]; ok {
					at = id
					break
				}
				path = append(path, stack)
			}
			for _, stack := range slices.Backward(path) {
				f := w.Stacks[stack].Frame
				at = push(at, w.functions[f], kindOf(w.Profile, f))
				pushed[place{process, stack}] = at
			}
			g.nodes[at].self += s.Values[value]
		}
	}
	g.add()
	return g
}

// add computes the totals, and links callers to their callees.
func (g *graph) add() {
	for id := len(g.nodes) - 1; id >= 0; id-- {
		n := &g.nodes[id]
		n.total += n.self
		if id > 0 {
			g.nodes[n.parent].total += n.total
			g.nodes[n.parent].children = append(g.nodes[n.parent].children, id)
		}
	}
	for _, n := range g.nodes {
		slices.SortFunc(n.children, func(a, b int) int {
			return cmp.Or(cmp.Compare(g.nodes[a].name, g.nodes[b].name), cmp.Compare(g.nodes[a].module, g.nodes[b].module))
		})
	}
}

// path returns the nodes from the root to a node.
func (g *graph) path(id int) []int {
	path := []int{id}
	for ; id != 0; id = g.nodes[id].parent {
		path = append(path, g.nodes[id].parent)
	}
	slices.Reverse(path)
	return path
}

// find returns the node of another graph's node, or the innermost of its callers that
// exists.
func (g *graph) find(old *graph, id int) int {
	at := 0
	for _, o := range old.path(id)[1:] {
		i := slices.IndexFunc(g.nodes[at].children, func(c int) bool { return g.nodes[c].function == old.nodes[o].function })
		if i < 0 {
			break
		}
		at = g.nodes[at].children[i]
	}
	return at
}

// matches returns for each node whether its name contains wanted, ignoring case, and the
// total of the nodes that do.
func (g *graph) matches(wanted string) (found []bool, total int64) {
	wanted = strings.ToLower(wanted)
	found, within := make([]bool, len(g.nodes)), make([]bool, len(g.nodes))
	for id, n := range g.nodes[1:] {
		id++
		found[id] = strings.Contains(strings.ToLower(n.name), wanted)
		if found[id] && !within[n.parent] {
			total += n.total
		}
		within[id] = found[id] || within[n.parent]
	}
	return found, total
}

// box is a node on the screen. It begins in column from and ends before column to.
type box struct{ node, from, to int }

// layout returns the rows of boxes if zoomed fills the given width: its callers, the root
// first, and below it its callees. Callees narrower than a column have no box.
func (g *graph) layout(zoomed, width int) [][]box {
	var rows [][]box
	for _, id := range g.path(zoomed) {
		rows = append(rows, []box{{id, 0, width}})
	}
	whole := float64(g.nodes[zoomed].total)
	if whole <= 0 {
		return rows
	}
	column := func(at int64) int { return min(int(float64(at)/whole*float64(width)), width) }
	start := map[int]int64{zoomed: 0} // by node of the last row, where it begins
	for last := rows[len(rows)-1]; ; {
		var row []box
		next := map[int]int64{}
		for _, b := range last {
			at := start[b.node]
			for _, id := range g.nodes[b.node].children {
				end := at + max(g.nodes[id].total, 0)
				if from, to := column(at), column(end); to > from {
					row = append(row, box{id, from, to})
					next[id] = at
				}
				at = end
			}
		}
		if len(row) == 0 {
			return rows
		}
		rows = append(rows, row)
		last, start = row, next
	}
}
