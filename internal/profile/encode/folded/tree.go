package folded

import (
	"cmp"
	"slices"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/label"
)

// tree is a profile's prefix tree of stacks, with nodes merged by their printed labels:
// two addresses in a function are two stacks of the profile, but one here. It stores
// lines as nodes rather than text, which would take tens of megabytes for a whole system.
type tree struct {
	// labels holds the printed frames.
	labels []string
	// nodes[0] is the root.
	nodes []node
	// stacks holds the node of each stack of the profile.
	stacks []nodeID
}

type (
	labelID uint32
	nodeID  uint32
)

type node struct {
	parent nodeID
	label  labelID
}

func (n node) words() (a, b uint64) { return uint64(n.parent)<<32 | uint64(n.label), 0 }

// newTree merges the stacks of p. It relies on a stack's ID being larger than its
// parent's.
func newTree(p *profile.Profile, o Options) *tree {
	t := &tree{nodes: make([]node, 1), stacks: make([]nodeID, len(p.Stacks))}

	ids := map[string]labelID{}
	intern := func(name string) labelID { return profile.Intern(&t.labels, ids, name) }
	delimiter := intern("-")
	frames := make([]labelID, len(p.Frames))
	for i := 1; i < len(p.Frames); i++ {
		name := plain.FoldedFrame(p.FrameName(profile.FrameID(i)))
		if o.Annotate {
			name += label.Suffix(p.Frames[i])
		}
		frames[i] = intern(name)
	}

	known := profile.NewIndex[node, nodeID](node.words)
	push := func(n node) nodeID { return known.Intern(&t.nodes, n) }
	for i := 1; i < len(p.Stacks); i++ {
		s := p.Stacks[i]
		parent := t.stacks[s.Parent]
		if o.Delimited && s.Parent != 0 && entersKernel(p, s) {
			parent = push(node{parent, delimiter})
		}
		t.stacks[i] = push(node{parent, frames[s.Frame]})
	}
	return t
}

// entersKernel reports whether s is the outermost kernel frame of a stack.
func entersKernel(p *profile.Profile, s profile.Stack) bool {
	caller := p.Stacks[s.Parent].Frame
	return p.Frames[s.Frame].Kind == profile.KindKernel && p.Frames[caller].Kind != profile.KindKernel
}

// order returns the rank of each node, sorted by their labels from the root.
func (t *tree) order() []int {
	rank := make([]labelID, len(t.labels))
	for i, l := range sortedLabels(t.labels) {
		rank[l] = labelID(i)
	}
	byLabel := make([]nodeID, len(t.nodes)-1)
	for i := range byLabel {
		byLabel[i] = nodeID(i + 1)
	}
	// Descending by label, since the children are popped from a stack. The second sort is
	// stable, and makes the children of a node adjacent.
	byLabel, _ = sortedBy(byLabel, len(t.labels), func(id nodeID) int { return len(t.labels) - 1 - int(rank[t.nodes[id].label]) })
	sorted, first := sortedBy(byLabel, len(t.nodes), func(id nodeID) int { return int(t.nodes[id].parent) })

	order := make([]int, len(t.nodes))
	for next, todo := 0, []nodeID{0}; len(todo) > 0; next++ {
		id := todo[len(todo)-1]
		order[id] = next
		todo = append(todo[:len(todo)-1], sorted[first[id]:first[id+1]]...)
	}
	return order
}

// sortedLabels returns the labels sorted by text.
func sortedLabels(labels []string) []labelID {
	sorted := make([]labelID, len(labels))
	for i := range sorted {
		sorted[i] = labelID(i)
	}
	slices.SortFunc(sorted, func(a, b labelID) int { return cmp.Compare(labels[a], labels[b]) })
	return sorted
}

// appendPath appends the labels from node n to the root.
func (t *tree) appendPath(dst []labelID, n nodeID) []labelID {
	for ; n != 0; n = t.nodes[n].parent {
		dst = append(dst, t.nodes[n].label)
	}
	return dst
}

// sortedBy returns nodes in the order of their keys, which are below limit, and the position of
// the first node with each key or a greater one. It is stable, and takes linear time.
func sortedBy(nodes []nodeID, limit int, key func(nodeID) int) (sorted []nodeID, first []int) {
	first = make([]int, limit+1)
	for _, id := range nodes {
		first[key(id)+1]++
	}
	for i := range limit {
		first[i+1] += first[i]
	}
	next := slices.Clone(first)
	sorted = make([]nodeID, len(nodes))
	for _, id := range nodes {
		k := key(id)
		sorted[next[k]] = id
		next[k]++
	}
	return sorted, first
}
