package flame

import (
	"cmp"
	"fmt"
	"slices"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/shortname"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/label"
	"fulgur/internal/profile/own"
)

// kind determines how a frame is drawn. It refines [profile.Kind].
type kind uint8

const (
	kindRoot       kind = iota // the box below everything
	kindCPU                    // a CPU: the first level in profiles by CPU
	kindGroup                  // a container, pod or unit: the next level in profiles by these
	kindProcess                // a process or thread: the next level
	kindUser                   // a function of a mapped file
	kindKernel                 // a function of the kernel
	kindJIT                    // a function without a file
	kindUnresolved             // code without a name, of any origin
	kindMarker                 // a note in place of a stack
)

// kindNames are the names of the kinds in the page's data and style sheet, in the order
// of the constants.
var kindNames = [...]string{"root", "cpu", "group", "process", "user", "kernel", "jit", "unresolved", "marker"}

// frameKey identifies a box. Unlike a [profile.Frame] it omits the position within the
// function.
type frameKey struct {
	name    string
	module  string // path of the mapping
	kind    kind
	inlined bool
}

// frame is a frameKey with further information for the page.
type frame struct {
	frameKey
	// address is the lowest start of the function's symbol, or the unresolved address.
	// Inlined functions have none.
	address uint64
	file    string
	line    int // first line of the function
	// code is that of the frame that says most about the program, since boxes are drawn by name.
	code own.Code
}

// shown returns the name to show: the whole one, or the short one.
func (f frame) shown(short bool) string {
	if short && f.isFunction() {
		return shortname.Of(f.name)
	}
	return f.name
}

// own returns the end of the short name that is the function's own name.
func (f frame) own() string {
	if f.isFunction() {
		return shortname.Own(f.name)
	}
	return f.name
}

// isFunction reports whether f is neither a process nor a note.
func (f frame) isFunction() bool { return f.kind >= kindUser && f.kind != kindMarker }

// fit returns as much of the name as width pixels of a picture show, the function's own
// name last to be cut. It returns "" if that would be too short to read.
func (f frame) fit(short bool, width float64) string {
	if room := int(width / svgCharWidth); f.isFunction() && room >= svgMinChars {
		return shortname.Fit(f.shown(short), room)
	}
	return fit(f.shown(short), width)
}

// compareOrigins orders equal frames by their origin.
func compareOrigins(a, b frame) int {
	return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
}

// source returns the start of the function in the source, as far as known.
func (f frame) source() string {
	if f.file == "" || f.line == 0 {
		return f.file
	}
	return fmt.Sprintf("%s:%d", f.file, f.line)
}

// compareFrames orders frames by identity.
func compareFrames(a, b frame) int {
	inlined := func(f frame) int {
		if f.inlined {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(a.name, b.name),
		cmp.Compare(a.module, b.module),
		cmp.Compare(a.kind, b.kind),
		cmp.Compare(inlined(a), inlined(b)),
	)
}

// node is a frame on top of its caller. Nodes are first made for each stack of each
// process. Nodes that show the same frame on the same caller are then merged into one
// box.
type node struct {
	parent, frame uint32
	// child and sibling link the nodes with the same parent. 0 ends the list, since node
	// 0 is the root.
	child, sibling uint32
	// into is the node into which this one was merged, or 0.
	into uint32
	// row is the node's index in tree.boxes, unless it was merged.
	row uint32
	// total is the selected value of the node with all its descendants. before is that
	// value in the base profile.
	total, before int64
}

// change returns the relative change of a node, from -1 (gone) to 1 (new).
func (n node) change() float64 {
	larger := max(n.total, n.before)
	if larger <= 0 {
		return 0
	}
	return max(-1, min((float64(n.total)-float64(n.before))/float64(larger), 1)) // values may be negative
}

// box is the position of a node in the tree.
type box struct {
	node  uint32
	depth int32
}

// tree is a profile in the form of a flame graph: a prefix tree of merged frames under a
// single root, with process names as the first level, or the second above CPUs.
type tree struct {
	frames []frame // sorted by compareFrames
	nodes  []node  // a parent's index is lower than its children's
	// boxes holds the remaining nodes after merging, in preorder, heaviest sibling first.
	boxes []box
	// profiles holds the displayed profile and optionally the base profile, whose samples
	// are not part of totals.
	profiles []*profile.Profile
	// ends holds, by profile and sample, the node of the sample's leaf.
	ends [][]uint32
	// tasks holds the tasks of all profiles.
	tasks []task
	// crowded is the number of samples shown without their innermost functions because of
	// maxNodes.
	crowded uint64
	limit   int // maximum number of nodes
	// timed is the displayed profile, if it has times.
	timed *timedProfile
	// idle is [report.Idle] of the displayed profile.
	idle []bool
}

// total returns the selected value of the whole profile.
func (t *tree) total() int64 { return t.nodes[0].total }

// drawn returns p with the losses of the graph: what is missing in p, and what the graph has no room for.
func (t *tree) drawn(p *profile.Profile) *profile.Profile {
	drawn := *p
	drawn.Losses = p.Losses.Missing()
	drawn.Losses[profile.LossTooMany] += t.crowded
	return &drawn
}

// newTree merges the samples of profiles. The first one is displayed, and its value type
// value determines the width of boxes. The parameter limit bounds the nodes of stacks.
func newTree(value, limit int, profiles ...*profile.Profile) (*tree, error) {
	if n := len(profiles[0].ValueTypes); value < 0 || value >= n {
		return nil, fmt.Errorf("flame graph: value type %d of a profile that has %d", value, n)
	}
	stacks := 0
	for _, p := range profiles {
		stacks += len(p.Stacks) + len(p.Tasks)
	}
	t := &tree{nodes: make([]node, 1, stacks), profiles: profiles, tasks: sortedTasks(profiles), limit: limit}
	m := merger{tree: t, frameIDs: map[frameKey]uint32{}}
	m.frame(frame{frameKey: frameKey{name: "all", kind: kindRoot}})
	for i, p := range profiles {
		t.ends = append(t.ends, m.add(p))
		for s, n := range t.ends[i] {
			if i == 0 {
				t.nodes[n].total += p.Samples[s].Values[value]
			} else {
				t.nodes[n].before += p.Samples[s].Values[value]
			}
		}
	}
	t.sortFrames()
	t.sum()
	t.place()
	return t, nil
}

// merger makes the nodes of a tree.
type merger struct {
	tree     *tree
	frameIDs map[frameKey]uint32
	// For the profile that is being added:
	p       *profile.Profile
	ofFrame []uint32 // by profile.FrameID; 0 means none yet
	codes   []own.Code
	known   []uint32 // by profile.StackID, its latest node
	path    []profile.StackID
}

// maxNodes bounds the nodes made by stacks. Each process has its own nodes, so a small
// file may describe any number. No browser can show a page with more.
const maxNodes = 1 << 23

// add makes the nodes of p and returns the nodes of its samples' leaves.
func (m *merger) add(p *profile.Profile) (ends []uint32) {
	m.p = p
	m.ofFrame, m.codes = make([]uint32, len(p.Frames)), own.Codes(p)
	m.known = make([]uint32, len(p.Stacks))
	names, groups := make([]string, len(p.Tasks)), label.Groups(p)
	for i, task := range p.Tasks {
		names[i], groups[i] = plain.Terminal(label.Task(task)), plainText(groups[i])
	}
	// Order samples by CPU, group and process name: a known node belongs to the current process
	// if its index is above the process's.
	byProcess := make([]uint32, len(p.Samples))
	for i := range byProcess {
		byProcess[i] = uint32(i)
	}
	cpu := func(i uint32) int { return p.Samples[i].CPU }
	group := func(i uint32) string { return groups[p.Samples[i].Task] }
	name := func(i uint32) string { return names[p.Samples[i].Task] }
	slices.SortFunc(byProcess, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(cpu(a), cpu(b)), cmp.Compare(group(a), group(b)), cmp.Compare(name(a), name(b)), cmp.Compare(a, b))
	})
	ends = make([]uint32, len(p.Samples))
	var onCPU, inGroup, process uint32
	for i, s := range byProcess {
		moved := i == 0 || cpu(s) != cpu(byProcess[i-1])
		if moved {
			onCPU = m.cpu(cpu(s))
		}
		if moved = moved || group(s) != group(byProcess[i-1]); moved {
			inGroup = m.group(onCPU, group(s))
		}
		if moved || name(s) != name(byProcess[i-1]) {
			process = m.push(inGroup, m.frame(frame{frameKey: frameKey{name: name(s), kind: kindProcess}}))
		}
		ends[s] = m.stack(process, p.Samples[s].Stack)
	}
	return ends
}

// cpu makes the node of a CPU, or returns the root in profiles not by CPU.
func (m *merger) cpu(cpu int) uint32 {
	name, ok := label.CPU(cpu)
	if !ok {
		return 0
	}
	return m.push(0, m.frame(frame{frameKey: frameKey{name: name, kind: kindCPU}}))
}

// group makes the node of a group of processes below parent, or returns parent without
// groups.
func (m *merger) group(parent uint32, name string) uint32 {
	if name == "" {
		return parent
	}
	return m.push(parent, m.frame(frame{frameKey: frameKey{name: name, kind: kindGroup}}))
}

// frame returns the ID of f, keeping the first origin of equal frames.
func (m *merger) frame(f frame) uint32 {
	if f.kind < kindUser {
		f.code = own.NoCode
	}
	id, ok := m.frameIDs[f.frameKey]
	if !ok {
		id = uint32(len(m.tree.frames))
		m.tree.frames = append(m.tree.frames, f)
		m.frameIDs[f.frameKey] = id
	} else {
		old := &m.tree.frames[id]
		code := own.Rank(old.code, f.code)
		if compareOrigins(f, *old) < 0 {
			*old = f
		}
		old.code = code
	}
	return id
}

// profileFrame returns the ID of the box frame for profile frame id.
func (m *merger) profileFrame(id profile.FrameID) uint32 {
	if m.ofFrame[id] == 0 {
		f := boxFrame(m.p, id)
		f.code = m.codes[id]
		m.ofFrame[id] = m.frame(f)
	}
	return m.ofFrame[id]
}

// Name returns the names of a frame's function and module as shown on the page.
func Name(p *profile.Profile, id profile.FrameID) (function, module string) {
	return plain.Terminal(p.FrameName(id)), plainText(p.Mappings[p.Frames[id].Mapping].Path)
}

// boxFrame converts profile frame id into a box frame.
func boxFrame(p *profile.Profile, id profile.FrameID) frame {
	pf := p.Frames[id]
	fn := p.Functions[pf.Function]
	name, module := Name(p, id)
	f := frame{
		frameKey: frameKey{name: name, module: module, kind: boxKind(p, id), inlined: pf.Inlined},
		file:     plainText(fn.File),
		line:     fn.StartLine,
	}
	if !pf.Inlined {
		f.address = pf.Address - pf.Offset
	}
	return f
}

// plainText is [plain.Terminal], except that an empty string stays empty.
func plainText(s string) string {
	if s == "" {
		return ""
	}
	return plain.Terminal(s)
}

func boxKind(p *profile.Profile, id profile.FrameID) kind {
	f := p.Frames[id]
	switch {
	case f.Kind == profile.KindMarker:
		return kindMarker
	case !p.Named(id):
		return kindUnresolved
	case f.Kind == profile.KindKernel:
		return kindKernel
	case f.Kind == profile.KindJIT:
		return kindJIT
	}
	return kindUser
}

// push makes a node for frame on parent.
func (m *merger) push(parent, frame uint32) uint32 {
	t := m.tree
	id := uint32(len(t.nodes))
	t.nodes = append(t.nodes, node{parent: parent, frame: frame, sibling: t.nodes[parent].child})
	t.nodes[parent].child = id
	return id
}

// stack returns the node of stack s on a process's node, which must be the last one made.
// It makes missing nodes of the stack's callers. If there is no room, the node represents
// everything above it.
func (m *merger) stack(process uint32, s profile.StackID) uint32 {
	m.path = m.path[:0]
	for s != 0 && m.known[s] < process {
		m.path = append(m.path, s)
		s = m.p.Stacks[s].Parent
	}
	node := process
	if s != 0 {
		node = m.known[s]
	}
	for _, s := range slices.Backward(m.path) {
		if len(m.tree.nodes) >= m.tree.limit {
			m.tree.crowded++
			break
		}
		node = m.push(node, m.profileFrame(m.p.Stacks[s].Frame))
		m.known[s] = node
	}
	return node
}

// sortFrames renumbers the frames in order, which makes the output independent of
// sampling order.
func (t *tree) sortFrames() {
	ids := make([]uint32, len(t.frames))
	for i := range ids {
		ids[i] = uint32(i)
	}
	slices.SortFunc(ids, func(a, b uint32) int { return compareFrames(t.frames[a], t.frames[b]) })
	sorted := make([]frame, len(ids))
	renumbered := make([]uint32, len(ids))
	for rank, id := range ids {
		sorted[rank] = t.frames[id]
		renumbered[id] = uint32(rank)
	}
	t.frames = sorted
	for i := range t.nodes {
		t.nodes[i].frame = renumbered[t.nodes[i].frame]
	}
}

// sum adds each node's total to its ancestors.
func (t *tree) sum() {
	for n := len(t.nodes) - 1; n > 0; n-- {
		parent := &t.nodes[t.nodes[n].parent]
		parent.total += t.nodes[n].total
		parent.before += t.nodes[n].before
	}
}

// place merges siblings with the same frame and computes boxes.
func (t *tree) place() {
	t.boxes = make([]box, 0, len(t.nodes))
	pending := []box{{}}
	var siblings []uint32
	for len(pending) > 0 {
		b := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		t.nodes[b.node].row = uint32(len(t.boxes))
		t.boxes = append(t.boxes, b)
		siblings = t.mergedChildren(siblings[:0], b.node)
		// Push the heaviest last, so that it is popped first.
		slices.SortFunc(siblings, func(a, b uint32) int {
			return cmp.Or(
				cmp.Compare(t.nodes[a].total, t.nodes[b].total),
				cmp.Compare(t.nodes[b].frame, t.nodes[a].frame),
			)
		})
		for _, n := range siblings {
			pending = append(pending, box{n, b.depth + 1})
		}
	}
}

// mergedChildren returns the children of n in the empty slice dst, after merging those
// with the same frame.
func (t *tree) mergedChildren(dst []uint32, n uint32) []uint32 {
	for c := t.nodes[n].child; c != 0; c = t.nodes[c].sibling {
		dst = append(dst, c)
	}
	slices.SortFunc(dst, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(t.nodes[a].frame, t.nodes[b].frame), cmp.Compare(a, b))
	})
	kept := dst[:0]
	for _, c := range dst {
		if k := len(kept); k > 0 && t.nodes[kept[k-1]].frame == t.nodes[c].frame {
			t.merge(kept[k-1], c)
		} else {
			kept = append(kept, c)
		}
	}
	return kept
}

// merge merges b into a.
func (t *tree) merge(a, b uint32) {
	na, nb := &t.nodes[a], &t.nodes[b]
	nb.into = a
	na.total += nb.total
	na.before += nb.before
	if nb.child == 0 {
		return
	}
	last := nb.child
	for t.nodes[last].sibling != 0 {
		last = t.nodes[last].sibling
	}
	t.nodes[last].sibling = na.child
	na.child = nb.child
}

// row returns the row of node n's box.
func (t *tree) row(n uint32) uint32 {
	if into := t.nodes[n].into; into != 0 {
		n = into
	}
	return t.nodes[n].row
}
