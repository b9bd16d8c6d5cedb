package naming

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/waits"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/runtimes/known"
	"fulgur/internal/unwind/stackend"
)

// StackBuilder adds a store's stacks to a profile.
type StackBuilder struct {
	builder *profile.Builder
	// Store holds the stacks.
	Store *stacks.Store
	names *Names

	frames [][]profile.FrameID    // by the store's frames; see [Names.place]
	stacks []profile.StackID      // by the store's nodes
	left   map[stacks.NodeID]bool // see HasLeft
}

// NewStackBuilder adds the stacks of a store, with their names, to b.
func NewStackBuilder(b *profile.Builder, store *stacks.Store, names *Names) *StackBuilder {
	p := &StackBuilder{
		builder: b,
		Store:   store,
		names:   names,
		frames:  make([][]profile.FrameID, len(store.Frames)),
		stacks:  make([]profile.StackID, len(store.Nodes)),
		left:    map[stacks.NodeID]bool{},
	}
	for i := range store.Frames {
		p.frames[i] = names.place(b, stacks.FrameID(i))
	}
	// A parent's identifier is lower than its children's.
	for i, node := range store.Nodes[1:] {
		p.stacks[i+1] = p.push(p.stacks[node.Parent], node.Frame)
	}
	for _, trace := range store.Traces {
		if trace.UserEnd == stackend.Fault || trace.UserEnd == stackend.NoMapping {
			p.markLeaving(trace.Leaf)
		}
	}
	return p
}

// leaving are the kernel functions in which a process leaves its address space, with a note
// in place of the user stack, which is gone.
var leaving = map[string]string{
	"do_exit":            "[exiting]",
	"bprm_execve":        "[exec]",
	"do_execveat_common": "[exec]",
	"load_elf_binary":    "[exec]",
}

// markLeaving puts a note in place of the unreadable callers of a stack in which the kernel
// has taken away a process's address space. Other stacks stay unchanged.
func (p *StackBuilder) markLeaving(leaf stacks.NodeID) {
	var path []stacks.NodeID // leaf first
	note, from := "", 0
	for node := leaf; node != 0; node = p.Store.Nodes[node].Parent {
		if !p.inKernel(node) {
			path = append(path, node) // the last user frame, which the registers have
			continue
		}
		function, _, _ := strings.Cut(p.functionName(p.Store.Nodes[node].Frame), ".") // "do_execveat_common.isra.0"
		if found := leaving[function]; found != "" {
			note, from = found, len(path)
		}
		path = append(path, node)
	}
	if note == "" {
		return
	}
	at := p.Mark(0, note)
	for i, node := range slices.Backward(path) {
		frame := p.Store.Nodes[node].Frame
		if p.Store.Codes[p.Store.Frames[frame].Code].Kind == stacks.CodeUnknown {
			continue // an address of the old address space
		}
		at = p.push(at, frame)
		if i <= from { // the nodes below are part of other stacks, too
			p.stacks[node] = at
			p.left[node] = true
		}
	}
}

// HasLeft reports whether a stack is of a process that had left its address space by exit
// or execve, so that nothing could be read of its user stack.
func (p *StackBuilder) HasLeft(node stacks.NodeID) bool { return p.left[node] }

// Omits reports whether callers may be missing in a stack, since generated code in it may hide them.
func (p *StackBuilder) Omits(node stacks.NodeID) bool {
	if len(p.Store.Omitting) == 0 {
		return false
	}
	for ; node != 0; node = p.Store.Nodes[node].Parent {
		if p.Store.Omitting[p.Store.Frames[p.Store.Nodes[node].Frame].Code] {
			return true
		}
	}
	return false
}

// Broken returns the loss in a broken stack: it depends on the code at which the stack broke.
func (p *StackBuilder) Broken(node stacks.NodeID) profile.Loss {
	at, ok := outermost(p.Store, node)
	if !ok {
		return profile.LossBrokenUser
	}
	code := p.Store.Frames[at].Code
	switch language, generated := generatedBy(p.Store, code); {
	case known.IsJava(language):
		return profile.LossBrokenJava
	case generated:
		return profile.LossBrokenGenerated
	case p.names.isC(at):
		return profile.LossBrokenC
	}
	return profile.LossBrokenUser
}

// outermost returns the outermost native user frame of a stack, and false if it has none. Stacks of
// several runtimes also have functions that no native frame stands for.
func outermost(store *stacks.Store, node stacks.NodeID) (at stacks.FrameID, ok bool) {
	for ; node != 0; node = store.Nodes[node].Parent {
		frame := store.Nodes[node].Frame
		switch code := store.Codes[store.Frames[frame].Code]; code.Kind {
		case stacks.CodeFile, stacks.CodeVDSO, stacks.CodeJIT, stacks.CodeUnknown:
			at, ok = frame, true
		case stacks.CodeRuntime:
			if known.ReadsMemory(code.Function.Kind) {
				at, ok = frame, true
			}
		case stacks.CodeKernel, stacks.CodeNamed, stacks.CodeBroken, stacks.CodeUnseen:
		}
	}
	return at, ok
}

// generatedBy reports whether native code was generated at run time, and returns the language whose
// runtime did so, "" if unknown.
func generatedBy(store *stacks.Store, id stacks.CodeID) (language string, ok bool) {
	switch code := store.Codes[id]; code.Kind {
	case stacks.CodeRuntime:
		return known.Name(code.Function.Kind), true
	case stacks.CodeJIT:
		return store.Languages[id], true
	}
	return "", false
}

// isC reports whether a frame is known to be in a function written in C or C++.
func (n *Names) isC(frame stacks.FrameID) bool {
	found := n.found[frame]
	if len(found) == 0 {
		return false
	}
	switch path.Ext(found[len(found)-1].File) {
	case ".c", ".cc", ".cpp", ".cxx", ".c++", ".C", ".h", ".hh", ".hpp":
		return true
	}
	return false
}

// push returns the stack at with a frame of the store on top.
func (p *StackBuilder) push(at profile.StackID, frame stacks.FrameID) profile.StackID {
	for _, f := range p.frames[frame] {
		at = p.builder.Push(at, f)
	}
	return at
}

// Trace returns the stack of a trace.
func (p *StackBuilder) Trace(id stacks.TraceID) profile.StackID {
	return p.stacks[p.Store.Traces[id].Leaf]
}

// PlaceFrom returns the stack of a node, without kernel frames if userOnly is set.
func (p *StackBuilder) PlaceFrom(node stacks.NodeID, userOnly bool) profile.StackID {
	for userOnly && node != 0 && p.inKernel(node) {
		node = p.Store.Nodes[node].Parent
	}
	return p.stacks[node]
}

// PlaceEntry returns the stack of a node at the entry of a function of a program, without the
// functions that are inlined there: they have not been called.
func (p *StackBuilder) PlaceEntry(node stacks.NodeID) profile.StackID {
	n := p.Store.Nodes[node]
	frames := p.frames[n.Frame]
	if node == 0 || p.inKernel(node) || len(frames) == 0 {
		return p.stacks[node]
	}
	return p.builder.Push(p.stacks[n.Parent], frames[0])
}

func (p *StackBuilder) inKernel(node stacks.NodeID) bool {
	kind := p.Store.Codes[p.Store.Frames[p.Store.Nodes[node].Frame].Code].Kind
	return kind == stacks.CodeKernel || kind == stacks.CodeNamed
}

// KernelFunctions returns the names of the kernel functions of a trace, leaf first;
// "" for frames without a name.
func (p *StackBuilder) KernelFunctions(id stacks.TraceID) []string {
	var functions []string
	for node := p.Store.Traces[id].Leaf; node != 0 && p.inKernel(node); {
		n := p.Store.Nodes[node]
		functions = append(functions, p.functionName(n.Frame))
		node = n.Parent
	}
	return functions
}

// IsWriteback reports whether the kernel writes back dirty pages in a trace.
func (p *StackBuilder) IsWriteback(id stacks.TraceID) bool {
	return slices.ContainsFunc(p.KernelFunctions(id), func(f string) bool { return f == "wb_workfn" || f == "wb_do_writeback" })
}

// Mark returns the stack with a note on top.
func (p *StackBuilder) Mark(at profile.StackID, note string) profile.StackID {
	return p.builder.Push(at, p.builder.Frame(profile.Frame{
		Function: p.builder.Function(profile.Function{Name: note, SystemName: note}),
		Kind:     profile.KindMarker,
	}))
}

// UpsideDown returns the stack at with the stack of a trace on top, leaf first,
// without kernel frames if userOnly is set, and with a note that names the trace's
// thread. If the trace was interrupted, only the interrupt's part is shown: the code
// below is not the cause.
func (p *StackBuilder) UpsideDown(at profile.StackID, id stacks.TraceID, userOnly bool) profile.StackID {
	for node := p.WithoutProbe(p.Store.Traces[id].Leaf); node != 0; {
		n := p.Store.Nodes[node]
		kernel := p.inKernel(node)
		if !userOnly || !kernel {
			at = p.push(at, n.Frame)
		}
		if kernel && waits.IsInterrupt(p.functionName(n.Frame)) {
			return p.Mark(at, "[interrupt]")
		}
		node = n.Parent
	}
	return p.Mark(at, p.task(id))
}

// WithoutProbe returns a stack without the frames of the probe that recorded it.
func (p *StackBuilder) WithoutProbe(node stacks.NodeID) stacks.NodeID {
	for node != 0 && p.inKernel(node) && waits.IsProbe(p.functionName(p.Store.Nodes[node].Frame)) {
		node = p.Store.Nodes[node].Parent
	}
	return node
}

// functionName returns the name of the function of a frame, or "".
func (p *StackBuilder) functionName(frame stacks.FrameID) string {
	found := p.names.found[frame]
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1].Name
}

// task returns the task of a trace as "comm-pid".
func (p *StackBuilder) task(id stacks.TraceID) string {
	trace := p.Store.Traces[id]
	return fmt.Sprintf("%s-%d", plain.Terminal(trace.Name()), trace.PID)
}
