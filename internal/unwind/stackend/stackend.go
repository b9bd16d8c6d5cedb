// Package stackend lists the reasons why stacks end: for the kernel side, which has the same numbers in
// enum stack_end of bpf/record.h, for the walker of package unwind, and for profiles.
package stackend

import "slices"

// End is the reason why a stack ends, or a half of one. It distinguishes complete stacks from truncated
// ones.
type End uint8

// The reasons of the kernel side.
const (
	// None: there is no such half. Without a user stack: a kernel thread, an io worker, idle.
	None End = iota
	// FramePointer: the chain of frame pointers ended. Frame pointers alone cannot tell whether that
	// was the root.
	FramePointer
	// Depth: the limit on frames was reached.
	Depth
	// Fault: the stack could not be read.
	Fault
	// Complete: the outermost function of the thread was reached.
	Complete
	// NoMapping: no known mapping contains the last frame's address.
	NoMapping
	// NoTable: the last frame's code has no unwind information.
	NoTable
	// Unsupported: no rule can express its unwind information.
	Unsupported
	// Register: its rule needs a register whose value is no longer known. Profiles have Unsupported
	// instead, see [End.InProfile].
	Register
	// NotGrowing: the caller's frame would not be above its callee's: the stack or the table is
	// corrupt.
	NotGrowing
	// NotReady: unwind tables of the process were not loaded yet, so frame pointers were used, or the
	// stack ends in code that the process had just mapped.
	NotReady
	// Evicted: the unwind table of the last frame's code was no longer loaded.
	Evicted
	// Broken: the chain of callers left all known code. The outermost frame is the marker
	// "[broken stack]".
	Broken
	// Unseen: the thread was off the CPU before the measurement began, and the kernel cannot read the
	// stack of a thread that is not running. The outermost frame is the marker "[before measurement]".
	Unseen
	// Late: the last frame's code has no table yet, since making it takes long. Profiles have NotReady
	// instead.
	Late

	// KernelSide is the number of reasons of the kernel side.
	KernelSide = int(Late) + 1
)

// Other reasons.
const (
	// Lost: the stack did not reach user space.
	Lost = End(KernelSide) + iota
	// Copy: perf record copied only a part of the stack, and the rest is not in it.
	Copy
	// BeyondCopy: fulgur copied only a part of the stack, as it does without BPF, and the rest is not in it.
	BeyondCopy
	// Deferred: perf record left the user stack for later, when the thread would return from the
	// kernel, and has no record of it.
	Deferred
	// Omitted: the stack reaches its root, but generated code in it, which keeps no frame pointers, may
	// hide its callers.
	Omitted
	// TooShort: without BPF, the stack of a thread that waits is read once fulgur looks at it, and this wait ended before.
	TooShort
	// Forbidden: the kernel does not let fulgur read the stack of a thread that waits.
	Forbidden
)

var names = [...]string{
	None: "no user stack", FramePointer: "end of frame pointers", Depth: "depth limit", Fault: "unreadable stack",
	Complete: "complete", NoMapping: "no code mapped", NoTable: "no unwind table", Unsupported: "unsupported unwind rule",
	Register: "register not known", NotGrowing: "stack does not grow", NotReady: "unwind tables not loaded yet",
	Evicted: "unwind table evicted", Broken: "broken stack", Unseen: "before measurement", Late: "unwind table not made yet",
	Lost: "stack lost", Copy: "end of stack copy", BeyondCopy: "end of fulgur's stack copy", Deferred: "user stack not recorded",
	Omitted: "callers missing in generated code", TooShort: "wait too short to look", Forbidden: "stack not readable",
}

// String returns the reason as shown in outputs.
func (e End) String() string {
	if int(e) < len(names) {
		return names[e]
	}
	return "unknown"
}

// Parse returns the reason that [End.String] shows as text, or None.
func Parse(text string) End { return End(max(slices.Index(names[:], text), 0)) }

// Cut reports whether a stack with this end lacks its root, or may lack it for a known reason.
func (e End) Cut() bool { return e != None && e != FramePointer && e != Complete }

// Marker returns what stands in outputs for the whole stack with this end, "" if that has frames.
func (e End) Marker() string {
	switch e {
	case Unseen, TooShort, Forbidden:
		return "[" + e.String() + "]"
	}
	return ""
}

// InProfile returns the reason as profiles have it: one for all that mean the same to their readers.
func (e End) InProfile() End {
	switch e {
	case Register:
		return Unsupported
	case Late:
		return NotReady
	}
	return e
}
