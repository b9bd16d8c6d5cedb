package perfdata

import (
	"slices"

	"fulgur/internal/profile"
	"fulgur/internal/unwind/stackend"
)

// generated counts the copied stacks with generated code by process, and those of them in which frame pointers led
// nowhere. If code uses the frame pointer for other values, as Java's does without -XX:+PreserveFramePointer, callers
// may be missing even in stacks that seem complete.
type generated map[int32]struct{ stacks, broken uint64 }

// If more than 1 in mostBroken stacks of a process are broken, its generated code does not keep frame pointers. If it
// does, stacks break only at the first instructions of a function, and in code outside functions: V8 and Java with frame
// pointers had 1 in 100 or fewer, Java without them 1 in 2.
const mostBroken = 16

// add counts a stack with generated code.
func (g generated) add(pid int32, end stackend.End) {
	n := g[pid]
	n.stacks++
	if end == stackend.Broken || end == stackend.NoMapping {
		n.broken++
	}
	g[pid] = n
}

// omits reports whether generated code of a process may hide callers.
func (g generated) omits(pid int) bool {
	n := g[int32(pid)]
	return n.broken*mostBroken > n.stacks
}

// mark marks the stacks of a profile in which callers may be missing.
func (g generated) mark(p *profile.Profile) {
	var frames []profile.FrameID
	for i := range p.Samples {
		s := &p.Samples[i]
		if s.End != stackend.Complete || !g.omits(p.Tasks[s.Task].PID) {
			continue
		}
		frames = p.AppendFrames(frames[:0], s.Stack)
		if slices.ContainsFunc(frames, func(id profile.FrameID) bool {
			return p.Frames[id].Kind == profile.KindJIT
		}) {
			s.End = stackend.Omitted
		}
	}
}
