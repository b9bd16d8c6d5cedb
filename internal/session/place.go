package session

import (
	"fmt"
	"slices"

	"fulgur/internal/encode/plain"
	"fulgur/internal/profile"
	"fulgur/internal/stacks"
	"fulgur/internal/waits"
)

// placer puts a store's stacks into a profile.
type placer struct {
	builder *profile.Builder
	store   *stacks.Store
	names   *names

	frames     [][]profile.FrameID // by the store's frames; see [names.place]
	stacks     []profile.StackID   // by the store's nodes
	unresolved []bool              // whether a frame of the node's stack has no name
}

func newPlacer(b *profile.Builder, store *stacks.Store, names *names) *placer {
	p := &placer{
		builder:    b,
		store:      store,
		names:      names,
		frames:     make([][]profile.FrameID, len(store.Frames)),
		stacks:     make([]profile.StackID, len(store.Nodes)),
		unresolved: make([]bool, len(store.Nodes)),
	}
	for i := range store.Frames {
		p.frames[i] = names.place(b, stacks.FrameID(i))
	}
	// A parent's identifier is lower than its children's.
	for i, node := range store.Nodes[1:] {
		p.stacks[i+1] = p.push(p.stacks[node.Parent], node.Frame)
		p.unresolved[i+1] = p.unresolved[node.Parent] || len(names.found[node.Frame]) == 0 && !names.left(node.Frame)
	}
	return p
}

// push returns the stack that is a frame of the store called from at.
func (p *placer) push(at profile.StackID, frame stacks.FrameID) profile.StackID {
	for _, f := range p.frames[frame] {
		at = p.builder.Push(at, f)
	}
	return at
}

// body returns the stack of a body.
func (p *placer) body(id stacks.BodyID) profile.StackID { return p.stacks[p.store.Bodies[id].Leaf] }

// placeFrom returns the stack of a node, without the kernel's frames if they are
// not wanted.
func (p *placer) placeFrom(node stacks.NodeID, userOnly bool) profile.StackID {
	for userOnly && node != 0 && p.inKernel(node) {
		node = p.store.Nodes[node].Parent
	}
	return p.stacks[node]
}

func (p *placer) inKernel(node stacks.NodeID) bool {
	return p.store.Codes[p.store.Frames[p.store.Nodes[node].Frame].Code].Kind == stacks.CodeKernel
}

// kernelFunctions returns the names of the kernel functions of a body, leaf
// first; an empty one for what has none.
func (p *placer) kernelFunctions(id stacks.BodyID) []string {
	var functions []string
	for node := p.store.Bodies[id].Leaf; node != 0 && p.inKernel(node); {
		n := p.store.Nodes[node]
		functions = append(functions, p.functionName(n.Frame))
		node = n.Parent
	}
	return functions
}

// isWriteback reports whether the kernel writes back in a body what processes wrote
// before.
func (p *placer) isWriteback(id stacks.BodyID) bool {
	return slices.ContainsFunc(p.kernelFunctions(id), func(f string) bool { return f == "wb_workfn" || f == "wb_do_writeback" })
}

// mark returns the stack with a note on top.
func (p *placer) mark(at profile.StackID, note string) profile.StackID {
	return p.builder.Push(at, p.builder.Frame(profile.Frame{
		Function: p.builder.Function(profile.Function{Name: note, SystemName: note}),
		Kind:     profile.KindMarker,
	}))
}

// upsideDown returns at with the stack of a body on top, leaf first, without
// the kernel's frames if they are not wanted, and a note of whose stack it is. A
// stack that was interrupted ends where it was: what ran before is not the cause.
func (p *placer) upsideDown(at profile.StackID, id stacks.BodyID, userOnly bool) profile.StackID {
	for node := p.withoutProbe(p.store.Bodies[id].Leaf); node != 0; {
		n := p.store.Nodes[node]
		kernel := p.inKernel(node)
		if !userOnly || !kernel {
			at = p.push(at, n.Frame)
		}
		if kernel && waits.IsInterrupt(p.functionName(n.Frame)) {
			return p.mark(at, "[interrupt]")
		}
		node = n.Parent
	}
	return p.mark(at, p.task(id))
}

// withoutProbe returns a stack without the frames of the probe that took it.
func (p *placer) withoutProbe(node stacks.NodeID) stacks.NodeID {
	for node != 0 && p.inKernel(node) && waits.IsProbe(p.functionName(p.store.Nodes[node].Frame)) {
		node = p.store.Nodes[node].Parent
	}
	return node
}

// functionName returns the name of the function that holds a frame, or "".
func (p *placer) functionName(frame stacks.FrameID) string {
	found := p.names.found[frame]
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1].Name
}

// task describes whose stack a body is: "comm-pid".
func (p *placer) task(id stacks.BodyID) string {
	body := p.store.Bodies[id]
	return fmt.Sprintf("%s-%d", plain.Terminal(body.Name()), body.PID)
}
