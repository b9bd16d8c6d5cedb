// Package profile is the model every mode of fulgur fills and every encoder
// reads: tasks, mappings, functions, frames, stacks as a prefix tree, samples
// and what was lost. It imports nothing of fulgur's and knows neither the
// kernel nor a file format. How much a profile holds at most is here, too, since
// every reader and every writer relies on it.
//
// All tables are slices indexed by small integer identifiers; index 0 of each
// table that has a "none" is that none. A Profile is built by a [Builder],
// which interns, and is read-only afterwards.
package profile

import "time"

// Kind tells which sort of code a frame belongs to.
type Kind uint8

// The kinds of frames.
const (
	// KindUser is code of a mapped file in user space.
	KindUser Kind = iota
	// KindKernel is code of the kernel, a module or a BPF program.
	KindKernel
	// KindJIT is user code that no file holds, named by a perf map or not
	// at all.
	KindJIT
	// KindMarker is no code: a note in the stack's place, such as
	// "[stack lost]".
	KindMarker
)

// String returns the kind's lower-case name as outputs show it.
func (k Kind) String() string {
	switch k {
	case KindUser:
		return "user"
	case KindKernel:
		return "kernel"
	case KindJIT:
		return "jit"
	case KindMarker:
		return "marker"
	}
	return "unknown"
}

// Identifiers into a [Profile]'s tables.
type (
	// MappingID indexes [Profile.Mappings]; 0 is no mapping.
	MappingID uint32
	// FunctionID indexes [Profile.Functions]; 0 is an unresolved function.
	FunctionID uint32
	// FrameID indexes [Profile.Frames]; 0 is no frame.
	FrameID uint32
	// StackID indexes [Profile.Stacks]; 0 is the empty stack, root of all.
	StackID uint32
	// TaskID indexes [Profile.Tasks].
	TaskID uint32
)

// Mapping is a file, or a region without one, that holds code.
type Mapping struct {
	// Path is the file's name as the profiled process saw it, or a name in
	// brackets: "[kernel.kallsyms]", "[vdso]", "[anon]", "[module]".
	Path string
	// BuildID is the GNU build ID in lower-case hex, empty if there is none
	// or the file could not be opened.
	BuildID string
	// Start and Limit are the lowest and one past the highest virtual
	// address at which the mapping was seen, Offset the file offset of
	// Start. Profiles of several processes may show one of several places.
	Start, Limit, Offset uint64
	// Base is the link-time virtual address of the file's lowest loaded
	// segment, from which other tools count addresses: 0 for libraries and
	// position-independent programs.
	Base uint64
}

// Function is a named piece of code.
type Function struct {
	// Name is the name shown: demangled, as the source language writes it.
	Name string
	// SystemName is the linker's name, equal to Name if nothing was mangled.
	SystemName string
	// File is the source file, empty where no debug information told.
	File string
	// StartLine is the 1-based line at which the function begins, or 0.
	StartLine int
}

// Frame is one function activation in a stack. Functions that the compiler
// inlined are frames of their own: they share Address and Mapping with the
// frame they are inlined into, and follow it towards the leaf with Inlined
// set.
type Frame struct {
	// Function is 0 if the address could not be resolved; the frame is then
	// shown as its module and offset, see [Profile.FrameName].
	Function FunctionID
	Mapping  MappingID
	// Address is the instruction's address in the mapping's file: the
	// link-time virtual address for files, the running address for kernel,
	// JIT and unmapped code.
	Address uint64
	// Return reports that Address is a return address: the call is the
	// instruction before it; see [Frame.Call]. Leaves, and frames that the kernel
	// or a signal interrupted, are exact.
	Return bool
	// Offset is the address less the start of the function's symbol, in
	// bytes; 0 if unresolved.
	Offset uint64
	// Line is the 1-based source line, 0 if unknown.
	Line    int
	Kind    Kind
	Inlined bool
}

// Call returns an address within the instruction that the frame is at, which is what
// to look up names, lines and instructions with.
func (f Frame) Call() uint64 {
	if f.Return && f.Address > 0 {
		return f.Address - 1
	}
	return f.Address
}

// Stack is a node of the prefix tree of stacks: a frame and the stack that
// called it. The kernel part of a stack stands on top of (is a descendant of)
// its user part.
type Stack struct {
	Parent StackID
	Frame  FrameID
}

// Task is a thread, or a process where threads were not told apart.
type Task struct {
	// PID is the process (thread group) ID in the initial pid namespace.
	PID int
	// TID is the thread ID, 0 where threads were not told apart.
	TID int
	// Comm is the task's name when it was sampled, at most 15 bytes. It is
	// untrusted text.
	Comm string
}

// ValueType names what a sample's value counts, in pprof's terms.
type ValueType struct {
	// Type is "samples", "cpu", "cycles"…
	Type string
	// Unit is "count", "nanoseconds", "bytes"…
	Unit string
}

// Sample is a stack that a task was seen in, with its values.
type Sample struct {
	Stack StackID
	Task  TaskID
	// CPU is the processor the samples were taken on, -1 where they were
	// not told apart.
	CPU int
	// End tells why the user part of the stack ends where it does.
	End End
	// Values has one value for each of [Profile.ValueTypes].
	Values []int64
}

// End is the reason why a user stack ended: it separates whole stacks from
// cut ones.
type End uint8

// The reasons why a user stack ends.
const (
	// EndNone: there is no user part (a kernel thread, an io worker, idle).
	EndNone End = iota
	// EndFramePointer: the chain of frame pointers ended. Whether that was
	// the root cannot be known from frame pointers alone.
	EndFramePointer
	// EndDepth: the limit on frames was reached.
	EndDepth
	// EndFault: the stack could not be read.
	EndFault
	// EndBroken: the chain of callers led out of all code. The outermost
	// frame is the marker "[broken stack]".
	EndBroken
	// EndLost: the stack's body did not reach user space.
	EndLost
	// EndComplete: the outermost function of the thread was reached.
	EndComplete
	// EndNoMapping: no code was known to be mapped at the last frame's address.
	EndNoMapping
	// EndNoTable: the last frame's code has no unwind information.
	EndNoTable
	// EndUnsupported: it has, but such that cannot be expressed, or that needs a
	// register whose value is not known any more.
	EndUnsupported
	// EndNotGrowing: the caller's frame would not be above its callee's.
	EndNotGrowing
	// EndNotReady: the process's unwind tables were not loaded yet, so that the
	// chain of frame pointers was followed.
	EndNotReady
	// EndEvicted: the unwind table of the last frame's code was not loaded any
	// more.
	EndEvicted
	// EndUnseen: the thread slept before the measurement, and the kernel cannot
	// read the stack of a thread that does not run. The outermost frame is the
	// marker "[before measurement]".
	EndUnseen
)

// Cut reports whether a stack that ends so lacks its root, or may lack it for a
// known reason.
func (e End) Cut() bool {
	switch e {
	case EndNone, EndFramePointer, EndComplete:
		return false
	}
	return true
}

// String returns the reason as outputs show it.
func (e End) String() string {
	switch e {
	case EndNone:
		return "no user stack"
	case EndFramePointer:
		return "end of frame pointers"
	case EndDepth:
		return "depth limit"
	case EndFault:
		return "unreadable stack"
	case EndBroken:
		return "broken stack"
	case EndLost:
		return "stack lost"
	case EndComplete:
		return "complete"
	case EndNoMapping:
		return "no code mapped"
	case EndNoTable:
		return "no unwind table"
	case EndUnsupported:
		return "unsupported unwind rule"
	case EndNotGrowing:
		return "stack does not grow"
	case EndNotReady:
		return "unwind tables not loaded yet"
	case EndEvicted:
		return "unwind table evicted"
	case EndUnseen:
		return "before measurement"
	}
	return "unknown"
}

// Meta describes the run that a profile comes from.
type Meta struct {
	// Converted says that the profile was read from a file of another format, which
	// need not tell what was lost.
	Converted bool
	// Command is the command line that was profiled or that profiled.
	Command string
	// Host, Kernel and Arch name the machine: node name, release (uname -r)
	// and machine (uname -m).
	Host, Kernel, Arch string
	// CPUs is the number of processors that were online, CPUName what their
	// maker calls them and Memory the machine's, in bytes; 0 or empty if not
	// known.
	CPUs    int
	CPUName string
	Memory  uint64
	// Start is the wall-clock time at which sampling began.
	Start time.Time
	// Duration is how long sampling lasted.
	Duration time.Duration
	// Event is the sampled event's name: "cycles", "cpu-clock"…
	Event string
	// Frequency is the asked rate in Hz, 0 if Period was asked.
	Frequency uint64
	// Period is the number of events between samples, 0 if Frequency was
	// asked.
	Period uint64
	// Value is the type of the value to show first, empty if none was named.
	Value string
	// PerCPU says that samples tell CPUs apart.
	PerCPU bool
	// Scope says what was measured: "whole system", "pid 42"…
	Scope string
}

// Profile is what was seen. Its tables are read-only once built.
type Profile struct {
	Meta       Meta
	ValueTypes []ValueType
	Mappings   []Mapping
	Functions  []Function
	Frames     []Frame
	Stacks     []Stack
	Tasks      []Task
	Samples    []Sample
	Losses     Losses
}

// Total returns the sum of value i over all samples.
func (p *Profile) Total(i int) int64 {
	var sum int64
	for _, s := range p.Samples {
		sum += s.Values[i]
	}
	return sum
}

// AppendFrames appends the frames of stack s to dst, leaf first, and returns
// the extended slice.
func (p *Profile) AppendFrames(dst []FrameID, s StackID) []FrameID {
	for s != 0 {
		n := p.Stacks[s]
		dst = append(dst, n.Frame)
		s = n.Parent
	}
	return dst
}
