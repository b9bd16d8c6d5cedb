package profile

import (
	"math"
	"slices"
	"time"

	"fulgur/internal/unwind/stackend"
)

// Kind is the kind of code of a frame.
type Kind uint8

// The kinds of frames.
const (
	// KindUser is code of a mapped file in user space.
	KindUser Kind = iota
	// KindKernel is code of the kernel, a module or a BPF program.
	KindKernel
	// KindJIT is user code without a file, named by a perf map or not at all.
	KindJIT
	// KindMarker is not code but a note in the stack, such as "[stack lost]".
	KindMarker
)

// String returns the kind's lowercase name as shown in outputs.
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

// IDs: indexes into a [Profile]'s tables.
type (
	// MappingID indexes [Profile.Mappings]; 0 means none.
	MappingID uint32
	// FunctionID indexes [Profile.Functions]; 0 is an unresolved function.
	FunctionID uint32
	// FrameID indexes [Profile.Frames]; 0 means none.
	FrameID uint32
	// StackID indexes [Profile.Stacks]; 0 is the empty stack, the root of all.
	StackID uint32
	// TaskID indexes [Profile.Tasks].
	TaskID uint32
	// OwnerID indexes [Profile.Owners]; 0 means none or unknown.
	OwnerID uint32
	// LabelsID indexes [Profile.Labels]; 0 means none.
	LabelsID uint32
)

// KernelPath is the [Mapping.Path] of the kernel's own code, as in perf.
const KernelPath = "[kernel.kallsyms]"

// JITPath is the [Mapping.Path] of user code without a file, see [KindJIT].
const JITPath = "[jit]"

// Mapping is a file, or a region without one, that contains code.
type Mapping struct {
	// Path is the file's name as seen by the profiled process, or a name in brackets:
	// [KernelPath], [JITPath], "[vdso]", "[anon]", "[module]".
	Path string
	// BuildID is the GNU build ID in lowercase hex, or empty if there is none or the file
	// could not be opened.
	BuildID string
	// GoBuildID is the build ID of the Go linker, and Hash OpenTelemetry's hash of the file, "" if unknown.
	GoBuildID, Hash string
	// Start is the lowest virtual address of the mapping, Limit one past the highest, and
	// Offset the file offset of Start. If several processes map the file, this may be any
	// one of their mappings.
	Start, Limit, Offset uint64
	// Base is the link-time virtual address of the file's lowest loaded segment, to which
	// addresses in other tools are relative: 0 for libraries and position-independent
	// programs.
	Base uint64
	// Placed is set if the profile was read from a format in which Start, Limit and Offset
	// determine the addresses of frames, [Mapping.Running]. Otherwise they are only an example.
	// Linked is then what was added to file offsets to make them link-time addresses, 0 if the
	// addresses of frames are file offsets still.
	Placed bool
	Linked uint64
	// Main is set if the profile was read from a format that names the profiled program's mapping,
	// and this is it.
	Main bool
	// Looked says what was looked up in the file, 0 if unknown.
	Looked Looked
}

// Looked is a set of facts about the names of a mapping's frames, as the flags of mappings in pprof.
type Looked uint8

// The facts. LookedStated is set if the others are as a file states them.
const (
	LookedStated Looked = 1 << iota
	LookedFunctions
	LookedFilenames
	LookedLines
	LookedInlined
)

// Running returns the address in the process of an address of a frame in m, and false if it is
// unknown.
func (m Mapping) Running(address uint64) (uint64, bool) {
	switch offset := address - m.Linked - m.Offset; {
	case !m.Placed:
		return 0, false
	case m.Start == 0 || address == 0 || offset >= m.Limit-m.Start:
		return address, true // not in the mapping
	default:
		return m.Start + offset, true
	}
}

// InFile returns the file offset of an address in the process, or the address itself if it is not
// in the mapping. It is the address of frames while Linked is 0.
func (m Mapping) InFile(running uint64) uint64 {
	if m.Start == 0 || running < m.Start || running >= m.Limit {
		return running
	}
	return running - m.Start + m.Offset
}

// Function is a named piece of code.
type Function struct {
	// Name is the name to show: demangled, in the syntax of the source language.
	Name string
	// SystemName is the linker name. It equals Name if nothing was mangled. It is empty if the input
	// lacks it, so that a conversion does not add it.
	SystemName string
	// File is the source file, or empty without debug information.
	File string
	// StartLine is the 1-based line at which the function begins, or 0.
	StartLine int
}

// Frame is a function activation in a stack. Inlined functions are separate frames: they
// share Address and Mapping with the frame that contains them, and follow it towards the
// leaf with Inlined set.
type Frame struct {
	// Function is 0 if the address could not be resolved. The frame is then shown as its
	// module and offset, see [Profile.FrameName]. A function without a symbol, see
	// [Profile.Named], may be resolved later by the mapping and the address.
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
	// Offset is the address relative to the start of the function, in bytes, or 0 if
	// unresolved.
	Offset uint64
	// Line and Column are 1-based, 0 if unknown.
	Line    int
	Column  int
	Kind    Kind
	Inlined bool
	// AtFunction reports that Address is the start of the function, because the instruction is
	// unknown, as in flame graph pages.
	AtFunction bool
}

// Call returns an address within the instruction that the frame is at, which is what
// to look up names, lines and instructions with.
func (f Frame) Call() uint64 {
	if f.Return && f.Address > 0 {
		return f.Address - 1
	}
	return f.Address
}

// Stack is a node of the prefix tree of stacks: a frame and the stack that called it. The
// kernel part of a stack is on top of (a descendant of) its user part.
type Stack struct {
	Parent StackID
	Frame  FrameID
}

func (s Stack) words() (a, b uint64) { return uint64(s.Parent)<<32 | uint64(s.Frame), 0 }

// Task is a thread, or a process in profiles not by thread, with the labels of its code. A thread
// with changing labels is several tasks.
type Task struct {
	// PID is the process (thread group) ID in fulgur's PID namespace, or as the
	// input has it.
	PID int
	// TID is the thread ID, or 0 in profiles not by thread.
	TID int
	// Comm is the task's name when it was sampled, at most 15 bytes. It is untrusted. Guessed is
	// set if it is only the name of the program, because the input has none.
	Comm    string
	Guessed bool
	// Owner is the container, pod and unit of its process.
	Owner OwnerID
	// Labels are the labels that the program gave to the running code.
	Labels LabelsID
}

// ValueType names the quantity of a sample's value, in pprof's terms.
type ValueType struct {
	// Type is "samples", "cpu", "cycles"…
	Type string
	// Unit is "count", "nanoseconds", "bytes"…
	Unit string
}

// Interval is an amount between two samples: 10 ms of CPU time, 512 KiB of allocations.
type Interval struct {
	Of     ValueType
	Amount int64
}

// Frequency returns the rate in Hz of samples by time, 0 of others.
func (i Interval) Frequency() uint64 {
	of, amount, _ := ParseUnit(i.Of.Unit)
	if of != nanoseconds || i.Amount <= 0 || i.Amount > math.MaxInt64/amount {
		return 0
	}
	return uint64(1e9 / (i.Amount * amount))
}

// Sample is the stack of a task, with its values.
type Sample struct {
	Stack StackID
	Task  TaskID
	// CPU is the CPU of the samples, or -1 in profiles not by CPU.
	CPU int
	// End is the reason why the user part of the stack ends.
	End stackend.End
	// Values has one value for each of [Profile.ValueTypes].
	Values []int64
}

// Meta describes the run that a profile comes from.
type Meta struct {
	// Converted is set if the profile was read from a file that does not say what the run
	// lost.
	Converted bool
	// Command is the command line of the profiled program or of the profiler.
	Command string
	// Host, Kernel and Arch describe the machine: node name, release (uname -r) and
	// machine (uname -m).
	Host, Kernel, Arch string
	// CPUs is the number of online CPUs, CPUName their model name, and Memory the
	// machine's memory in bytes. They are 0 or empty if unknown.
	CPUs    int
	CPUName string
	Memory  uint64
	// Start is the wall-clock time at which sampling began.
	Start time.Time
	// Duration is how long sampling took.
	Duration time.Duration
	// Event is the sampled event's name: "cycles", "cpu-clock"…
	Event string
	// Frequency is the requested rate in Hz, or 0 if Period was requested. If fulgur lowered
	// the rate to save CPU time, Frequency is the lower rate, and RequestedFrequency is not 0.
	Frequency, RequestedFrequency uint64
	// Reduction is not 0 if fulgur measured less than requested to save CPU time: samples were rarer by
	// about this factor, and so were waits, except those after long ones. Each has more weight.
	Reduction uint64
	// NamesOmitted is set if fulgur did not look up functions, to save CPU time or memory.
	NamesOmitted bool
	// Period is the requested number of events between samples, or 0 if Frequency was
	// requested.
	Period uint64
	// Value is the type of the value to show first, or empty if none was selected. ValueGuessed is
	// set if the input does not select it.
	Value        string
	ValueGuessed bool
	// Triggers are the moments for which a flight recorder wrote the profile, the first of them first.
	Triggers []Trigger
	// Every is the amount between two samples, if the profile was read from a file that states it.
	Every Interval
	// Comments are lines of text that the input has besides fulgur's own, and DocURL is where it
	// says that its documentation is. DropFrames and KeepFrames are its regular expressions for
	// functions whose callees are not to be shown. All are untrusted.
	Comments                       []string
	DocURL, DropFrames, KeepFrames string
	// PerCPU is set in profiles by CPU.
	PerCPU bool
	// Grouping is what the first frame of stacks stands for.
	Grouping Grouping
	// GroupLabel is the key of the label to group by, if Grouping is [GroupLabel].
	GroupLabel string
	// Scope is what was measured: "whole system", "pid 42".
	Scope string
	// Stripped are the files whose functions have no names.
	Stripped StrippedFiles
	// Slowest are the slowest intervals, the slowest first, if intervals were measured; see [Slowest].
	Slowest []SlowInterval
	// Unmeasured says what the way of measuring left out, in lines of text. They are untrusted.
	Unmeasured []string
}

// StrippedFiles are files without symbols.
type StrippedFiles struct {
	// Files has those that affect the most samples, in descending order.
	Files []Stripped
	// Omitted is the number of other files.
	Omitted int
}

// Stripped is a file without symbols, or only with those that it exports.
type Stripped struct {
	Path, BuildID string
	// Exports is set if functions of the file have names, which are exported.
	Exports bool
	// Samples is the number of samples with an unnamed frame in the file.
	Samples uint64
	// Remedy says what the user can do: "install libfoo1-dbgsym or set DEBUGINFOD_URLS".
	Remedy string
}

// Profile is the result of a measurement. Its tables are read-only once built.
type Profile struct {
	Meta       Meta
	ValueTypes []ValueType
	Mappings   []Mapping
	Functions  []Function
	Frames     []Frame
	Stacks     []Stack
	Tasks      []Task
	Owners     []Owner
	Labels     []Labels
	Samples    []Sample
	Losses     Losses
	// Published are the attributes that processes publish about themselves, by PID. They are
	// untrusted.
	Published map[int][]Attribute
	// Executables are the paths of the programs of processes, by PID, as far as known. They are
	// untrusted.
	Executables map[int]string
}

// Attribute is an attribute in the sense of OpenTelemetry.
type Attribute struct {
	Key string
	// Value is a string, an int64 or a bool.
	Value any
}

// Total returns the sum of value i over all samples.
func (p *Profile) Total(i int) int64 {
	var sum int64
	for _, s := range p.Samples {
		sum += s.Values[i]
	}
	return sum
}

// OffCPUTime is the value for the duration of waits.
var OffCPUTime = ValueType{Type: "off-cpu", Unit: "nanoseconds"}

// GoroutineWaits is the event of profiles of waits of goroutines, rather than of threads; see [Meta].
const GoroutineWaits = "goroutine waits"

// ElapsedTime is the value for CPU time that is divided by the number of threads that ran at the same
// time. It follows the CPU time. Its total is the time in which any thread ran.
var ElapsedTime = ValueType{Type: "elapsed", Unit: "nanoseconds"}

// Weight returns the index of the value that weighs samples: the one to show first, or else
// the last. It is -1 if there are no values.
func (p *Profile) Weight() int {
	if i := slices.IndexFunc(p.ValueTypes, func(v ValueType) bool { return v.Type == p.Meta.Value }); i >= 0 {
		return i
	}
	return len(p.ValueTypes) - 1
}

// sampled returns the index of the value that was sampled at a period: [Profile.Weight], or the CPU time
// instead of a part of it. It is -1 if there are no values.
func (p *Profile) sampled() int {
	w := p.Weight()
	if w > 0 && p.ValueTypes[w] == ElapsedTime {
		return w - 1
	}
	return w
}

// Period returns the amount of weight between two samples, in the unit of the value that
// [Profile.Sampled] returns, or 0 if it varies or is unknown.
func (p *Profile) Period() int64 {
	w := p.sampled()
	switch {
	case w < 0 || p.ValueTypes[w] == OffCPUTime: // waits are measured, not sampled
		return 0
	case p.Meta.Period > 0:
		return int64(p.Meta.Period)
	case p.Meta.Frequency > 0 && p.ValueTypes[w].Unit == "nanoseconds":
		return int64(1e9 / p.Meta.Frequency)
	}
	return 0
}

// Sampled returns [Profile.Period] with its type, and false if the profile is another tool's and does
// not say how it was sampled.
func (p *Profile) Sampled() (every Interval, ok bool) {
	w := p.sampled()
	if w < 0 || p.Meta.Converted && p.Period() == 0 {
		return every, false
	}
	return Interval{Of: p.ValueTypes[w], Amount: p.Period()}, true
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
