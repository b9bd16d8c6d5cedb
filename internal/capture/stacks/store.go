// Package stacks is the user-space part of stack interning. It keeps the trace of
// every stack ID from the kernel side, and the counts by ID. Frames are resolved to
// the file that contains their code while the process lives.
//
// Traces are stored in a prefix tree of frames, so thousands of stacks with a common
// root take little more memory than their differences. IDs with the same meaning,
// such as stacks that differ only where they are broken, share a trace and
// its counts: each takes only a few bytes.
package stacks

import (
	"bytes"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/containers"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/runtimes"
	"fulgur/internal/runtimes/known"
	"fulgur/internal/unwind/stackend"
)

// Identifiers into a [Store]'s tables.
type (
	// CodeID indexes [Store.Codes].
	CodeID uint32
	// FrameID indexes [Store.Frames].
	FrameID uint32
	// NodeID indexes [Store.Nodes]; 0 is the empty stack.
	NodeID uint32
	// TraceID indexes [Store.Traces].
	TraceID uint32
)

// Code is a piece of code that contains frames.
type Code struct {
	// Kind determines which of the other fields are used.
	Kind CodeKind
	// File is the mapped file of CodeFile.
	File *process.File
	// PID is the process of CodeJIT and CodeUnknown.
	PID int
	// PerfMap may name the code of CodeJIT. A process has several if it had
	// different code at the same addresses.
	PerfMap *process.PerfMap
	// JITDumps may name it, too; see [Store.Seen].
	JITDumps *process.JITDumps
	// Function is the function of CodeRuntime. If its name did not arrive, only the
	// kind is set.
	Function *runtimes.Code
	// End is the reason of CodeUnseen.
	End stackend.End
	// Name is the name of CodeNamed.
	Name string
}

// CodeKind is the kind of a piece of code.
type CodeKind uint8

// Kinds of code, and the meaning of frames' addresses in it.
const (
	// CodeKernel: the kernel's address space; addresses are absolute.
	CodeKernel CodeKind = iota
	// CodeFile: a mapped file; addresses are file offsets.
	CodeFile
	// CodeVDSO: the vdso; addresses are relative to its start.
	CodeVDSO
	// CodeJIT: executable memory without a file; addresses are absolute.
	CodeJIT
	// CodeUnknown: no known executable mapping; addresses are absolute.
	CodeUnknown
	// CodeBroken: not code, but a marker for a broken stack, as its outermost
	// frame.
	CodeBroken
	// CodeRuntime: a function of a language runtime; addresses are lines.
	CodeRuntime
	// CodeUnseen: not code, but a marker that stands for the user stack of a
	// thread if nothing could read it; End has the reason.
	CodeUnseen
	// CodeNamed: a function of the kernel of which only the name is known; there are no addresses.
	CodeNamed
)

// Frame is an instruction in some code.
type Frame struct {
	Code CodeID
	// Epoch distinguishes periods of a process in which an address may have different code.
	// It is 0 except for code with JITDumps, which have times.
	Epoch   uint32
	Address uint64
	// Return means that Address is a return address: the call is in the bytes
	// before it, perhaps in another function or even another mapping. The
	// innermost frame of each half of a stack is the exact address of the
	// interrupted instruction.
	Return bool
}

func (f Frame) words() (a, b uint64) {
	b = uint64(f.Epoch)<<32 | uint64(f.Code)<<1
	if f.Return {
		b++
	}
	return f.Address, b
}

// Call returns an address inside the frame's instruction, for looking up names.
func (f Frame) Call() uint64 {
	if f.Return && f.Address > 0 {
		return f.Address - 1
	}
	return f.Address
}

// Node is a frame and the stack that called it.
type Node struct {
	Parent NodeID
	Frame  FrameID
}

func (n Node) words() (a, b uint64) { return uint64(n.Parent)<<32 | uint64(n.Frame), 0 }

// Trace is the stack of a stack ID.
type Trace struct {
	PID  uint32
	Comm [16]byte
	// Owner leads to the container, pod and unit of the process, nil unless
	// [Store.Owners] finds them.
	Owner *containers.Membership
	// Labels leads to the labels of the running code, nil if it has none. Unlabeled means that
	// they had no room.
	Labels    *Labels
	Unlabeled bool
	// Open means that rules have yet to decide whether the process is measured, and Rules are those
	// that may match it; see [fulgur/internal/capture/rules.Judge].
	Open  bool
	Rules uint64
	Leaf  NodeID
	// KernelEnd and UserEnd are the reasons why each half ends.
	KernelEnd, UserEnd stackend.End
	// Broken means that the chain of callers left all known code, because a
	// register that should have been the frame pointer held something else. The
	// callers from there on are left out.
	Broken bool
	// Cut means that the frames from the first one that was not stored yet are
	// missing: there was no room; see [Store.MaxNodes].
	Cut bool
}

// Name returns the task's name.
func (b Trace) Name() string {
	name, _, _ := bytes.Cut(b.Comm[:], []byte{0})
	return string(name)
}

// Sample is the key of sums: a trace with the other properties that the source
// distinguishes; see [Key].
type Sample struct {
	Source uint8 // as in [Key]
	Trace  TraceID
	// Waker is the index of the waker's trace, counted from 1; 0 means none.
	Waker    TraceID
	Owner    uint32 // as in [Key]
	File     uint64
	Cgroup   uint64
	TID, CPU uint32
	Detail   uint64
}

// Ownership is the owner of a process from a time on (CLOCK_MONOTONIC ns).
type Ownership struct {
	Since uint64
	Owner *containers.Membership
}

// Range is the mapping of a file when a frame in it was first seen.
type Range struct{ Start, Limit, Offset uint64 }

// Resolver returns the code of a process at an address and time (CLOCK_MONOTONIC
// ns).
type Resolver interface {
	Resolve(pid int, addr, time uint64) process.Location
}

// Store holds traces. It is not safe for concurrent use.
type Store struct {
	Codes  []Code
	Ranges []Range // parallel to Codes
	Frames []Frame
	Nodes  []Node
	Traces []Trace
	// Samples holds the counts that [Store.Count] moved here.
	Samples map[Sample]Values
	// Files holds the files from the kernel side, by its IDs.
	Files map[uint64]File
	// Anonymous omits the process and its name from traces, so that equal stacks
	// share a trace.
	Anonymous bool
	// MaxNodes limits Nodes, and thus memory; 0 means no limit. Of further
	// stacks, only the part that they share with others is kept.
	MaxNodes int
	// Hides, if not nil, reports whether the native frames of a file are left out of stacks
	// that have frames of a language runtime.
	Hides func(*process.File) bool
	// Readers, if not nil, returns the reader of the functions of a process at a time in ns
	// (CLOCK_MONOTONIC), or nil.
	Readers func(pid int, kind runtimes.Kind, time uint64) runtimes.Reader
	// Language, if not nil, returns the language that the code of a file executes or, if it is nil,
	// whose runtime has generated the code of a process; "" if unknown. Languages holds the known
	// ones by code.
	Language  func(pid int, f *process.File) string
	Languages map[CodeID]string
	// NativeOnly means that stacks have no functions of any of these languages, also of those whose frames the kernel
	// side can read.
	NativeOnly bool
	// Omits, if not nil, reports whether code that a runtime has generated in a process may hide its
	// callers. Omitting holds such code.
	Omits    func(pid int) bool
	Omitting map[CodeID]bool
	// KernelName, if not nil, returns the name of a function of the kernel, for what a record has in place of an address.
	KernelName func(word uint64) string
	// Keys, if not nil, returns the keys of the attributes of threads of a process image, by
	// index, at least up to index last if it is known.
	Keys func(pid int, epoch uint64, last int) []string
	// Unkept counts functions of language runtimes that had no room, in this store and those
	// that [Store.Next] makes from it.
	Unkept *uint64
	// Seen holds when frames of code with JITDumps were first seen (CLOCK_MONOTONIC ns).
	Seen map[Frame]uint64
	// Interpreted holds the processes with frames of a language runtime.
	Interpreted map[int]bool
	// Owners, if not nil, finds the owners of processes. If traces are anonymous, Owned
	// holds the owners by process, in order of time.
	Owners *containers.Tracker
	Owned  map[int][]Ownership
	// Judge, if not nil, returns the rules that may match a process, about which the kernel side could
	// not decide, at a time in ns (CLOCK_MONOTONIC).
	Judge func(m bpf.RuleMatch, pid int, at uint64, owner *containers.Membership) uint64

	resolver  Resolver
	previous  *Store             // see [Store.Next]; nil if none
	ids       map[uint64]TraceID // by the kernel side's ID
	broken    NodeID
	traces    map[Trace]TraceID
	joints    map[[2]TraceID]TraceID // by user and kernel half
	codes     map[Code]CodeID
	frames    *profile.Index[Frame, FrameID]
	nodes     *profile.Index[Node, NodeID]
	recent    []step           // nil before the first
	shared    []sharedStep     // likewise
	record    *bpf.StackRecord // a copy of the current record, nil before the first
	functions functions
	labels    labels
	words     []userWord // of the current record
	// unfinished means that the process did not answer for all functions of the current
	// record.
	unfinished bool
	retries    map[uint64]retry // stacks that were unfinished, by ID
	now        func() time.Time
}

// step is the step from a stack to its extension by an address, in one process
// image. Most stacks differ from earlier ones near the leaf only. Known steps need
// neither resolving nor interning.
type step struct {
	epoch, addr  uint64
	second       uint64 // second word of a frame of a runtime
	pc           uint64 // of a frame of a runtime with a reader
	parent, node NodeID // node is 0 if nothing is stored
	isReturn     bool
}

// sharedStep is a step into a file's code in any process image. Processes that run the same
// program share it, although their addresses differ. It saves interning.
type sharedStep struct {
	file         *process.File
	offset       uint64
	parent, node NodeID // node is 0 where nothing is kept
	isReturn     bool
}

// sharedSteps is the size of the direct-mapped table of shared steps, a power of two.
const sharedSteps = 1 << 12

// recentSteps is the size of the direct-mapped table of steps, a power of two.
const recentSteps = 1 << 13

// NewStore returns an empty store that resolves user frames with r.
func NewStore(r Resolver) *Store {
	s := &Store{
		Codes:       []Code{{Kind: CodeKernel}},
		Ranges:      []Range{{}},
		Nodes:       make([]Node, 1),
		Samples:     map[Sample]Values{},
		Files:       map[uint64]File{},
		Interpreted: map[int]bool{},
		Languages:   map[CodeID]string{},
		Omitting:    map[CodeID]bool{},
		Seen:        map[Frame]uint64{},
		Unkept:      new(uint64),
		Owned:       map[int][]Ownership{},
		resolver:    r,
		ids:         map[uint64]TraceID{},
		traces:      map[Trace]TraceID{},
		joints:      map[[2]TraceID]TraceID{},
		codes:       map[Code]CodeID{{Kind: CodeKernel}: 0},
		frames:      profile.NewIndex[Frame, FrameID](Frame.words),
		nodes:       profile.NewIndex[Node, NodeID](Node.words),
		retries:     map[uint64]retry{},
		now:         time.Now,
	}
	s.functions, s.labels = newFunctions(), newLabels()
	s.broken = s.push(0, Frame{Code: s.code(Code{Kind: CodeBroken}, Range{})})
	return s
}

// Lasting returns a store that has only the frames of s, from first on, whose names stay the same
// while processes run (in files, the vdso and the kernel), and their code. Later changes to s do not
// affect it.
func (s *Store) Lasting(first int) *Store {
	part, codes := new(Store), map[CodeID]CodeID{}
	for _, f := range s.Frames[first:] {
		switch s.Codes[f.Code].Kind {
		case CodeKernel, CodeFile, CodeVDSO:
		default:
			continue
		}
		id, known := codes[f.Code]
		if !known {
			id = CodeID(len(part.Codes))
			part.Codes, part.Ranges = append(part.Codes, s.Codes[f.Code]), append(part.Ranges, s.Ranges[f.Code])
			codes[f.Code] = id
		}
		f.Code = id
		part.Frames = append(part.Frames, f)
	}
	return part
}

// Memory returns about how many bytes of memory the traces take.
func (s *Store) Memory() int64 {
	const idBytes, sampleBytes, codeBytes, indexBytes = 24, 150, 200, 12
	n := int64(cap(s.Frames))*int64(unsafe.Sizeof(Frame{})) + int64(cap(s.Nodes))*int64(unsafe.Sizeof(Node{})) + int64(cap(s.Traces))*int64(unsafe.Sizeof(Trace{}))
	n += int64(len(s.Codes))*codeBytes + int64(len(s.Samples))*sampleBytes + int64(len(s.ids)+len(s.joints))*idBytes
	n += int64(len(s.traces)) * 2 * int64(unsafe.Sizeof(Trace{}))
	if s.nodes != nil {
		n += int64(cap(s.Frames)+cap(s.Nodes)) * indexBytes
	}
	return n + int64(cap(s.recent))*int64(unsafe.Sizeof(step{})) + int64(cap(s.shared))*int64(unsafe.Sizeof(sharedStep{}))
}

// Seal frees memory that only further traces need.
func (s *Store) Seal() {
	s.functions, s.labels, s.retries = functions{}, labels{}, nil
	s.ids, s.traces, s.joints, s.codes, s.frames, s.nodes, s.recent, s.shared = nil, nil, nil, nil, nil, nil, nil, nil
}

// Clip frees the room for further stacks. It copies those that are there.
func (s *Store) Clip() {
	s.Frames, s.Nodes, s.Traces = slices.Clone(s.Frames), slices.Clone(s.Nodes), slices.Clone(s.Traces)
}

// Trace returns the trace of id, or false if it has not arrived.
func (s *Store) Trace(id uint64) (Trace, bool) {
	i, ok := s.Find(id)
	if !ok {
		return Trace{}, false
	}
	return s.Traces[i], true
}

// Count moves the counts whose traces have arrived to [Store.Samples].
func (s *Store) Count(counts map[Key]Values) {
	for key, value := range counts {
		sample, ok := s.Sample(key)
		if !ok {
			continue
		}
		s.CountSample(sample, value)
		delete(counts, key)
	}
}

// CountSample adds a value to [Store.Samples].
func (s *Store) CountSample(sample Sample, value Values) { addTo(s.Samples, sample, value) }

// Sample returns the sample of a key, or false if one of its traces has not arrived.
func (s *Store) Sample(key Key) (Sample, bool) {
	sample := Sample{Source: key.Source, File: key.File, Cgroup: key.Cgroup, TID: key.TID, CPU: key.CPU, Owner: key.Owner, Detail: key.Detail}
	var ok bool
	if sample.Trace, ok = s.Find(key.ID); !ok {
		return sample, false
	}
	if key.Kernel != 0 {
		kernel, ok := s.Find(key.Kernel)
		if !ok {
			return sample, false
		}
		sample.Trace = s.join(sample.Trace, kernel)
	}
	if key.Waker != 0 {
		waker, ok := s.Find(key.Waker)
		if !ok {
			return sample, false
		}
		sample.Waker = waker + 1
	}
	return sample, true
}

// join returns a trace with the user half of user and the kernel half of kernel.
func (s *Store) join(user, kernel TraceID) TraceID {
	halves := [2]TraceID{user, kernel}
	if joint, ok := s.joints[halves]; ok {
		return joint
	}
	trace := s.Traces[user]
	trace.KernelEnd = s.Traces[kernel].KernelEnd
	if !trace.Cut {
		trace.Leaf, trace.Cut = s.stack(trace.Leaf, s.Traces[kernel].Leaf)
		trace.Cut = trace.Cut || s.Traces[kernel].Cut
	}
	joint := s.trace(trace)
	s.joints[halves] = joint
	return joint
}

// stack returns the stack of upper's frames called from lower. It reports whether it
// is truncated.
func (s *Store) stack(lower, upper NodeID) (at NodeID, cut bool) {
	if upper == 0 {
		return lower, false
	}
	n := s.Nodes[upper]
	below, cut := s.stack(lower, n.Parent)
	if cut {
		return below, true
	}
	at = s.node(Node{Parent: below, Frame: n.Frame})
	return at, at == below
}

// RecordType returns the type of a ring record.
func RecordType(record []byte) (bpf.RecordType, error) {
	t, err := ringbuf.As[bpf.RecordType](record, unsafe.Sizeof(bpf.RecordType(0)))
	if err != nil {
		return 0, err
	}
	return *t, nil
}

// recordHeader is the size of a stack record without frames.
const recordHeader = unsafe.Offsetof(bpf.StackRecord{}.Frames)

// Add adds the trace of a stack record. It ignores a trace that is already known:
// the kernel side forgets what it has sent.
func (s *Store) Add(record []byte) error {
	r, err := s.parse(record)
	if err != nil {
		return err
	}
	if _, known := s.ids[r.Id]; known {
		return nil
	}
	s.unfinished = false
	s.ids[r.Id] = s.traceOf(r)
	if s.unfinished {
		s.keepUnfinished(r.Id, record)
	}
	return nil
}

// parse returns a copy of a stack record, which the next call overwrites.
func (s *Store) parse(record []byte) (*bpf.StackRecord, error) {
	if s.record == nil {
		s.record = new(bpf.StackRecord)
	}
	r := s.record
	if err := ringbuf.Copy(r, record, recordHeader); err != nil {
		return nil, err
	}
	frames := int(r.KernelFrames) + int(r.UserFrames)
	if n := (len(record) - int(recordHeader)) / 8; frames > min(n, len(r.Frames)) {
		return nil, fmt.Errorf("%w: %d frames in %d bytes", ringbuf.ErrRecord, frames, len(record))
	}
	return r, nil
}

// traceOf returns the trace of a stack record. It sets unfinished if a later call may find more.
func (s *Store) traceOf(r *bpf.StackRecord) TraceID {
	trace := Trace{PID: r.Pid, KernelEnd: stackend.End(r.KernelEnd), UserEnd: stackend.End(r.UserEnd), Comm: r.Comm}
	pid := int(trace.PID)
	if s.Owners != nil && pid != 0 {
		trace.Owner = s.Owners.Of(pid, r.Epoch, r.Cgroup, r.Time)
	}
	if s.Judge != nil && r.Match.Rules != 0 {
		trace.Open, trace.Rules = true, s.Judge(r.Match, pid, r.Time, trace.Owner)
	}
	trace.Labels = s.labels.find(r.Labels)
	trace.Unlabeled = r.Labels != 0 && trace.Labels == nil
	if s.Anonymous {
		s.own(pid, Ownership{r.Time, trace.Owner})
		trace.PID, trace.Comm, trace.Owner, trace.Labels, trace.Unlabeled = 0, [16]byte{}, nil, nil, false
	}
	// From the root: the last user frame comes first, the kernel's leaf last.
	user := r.Frames[r.KernelFrames : int(r.KernelFrames)+int(r.UserFrames)]
	s.addUser(&trace, pid, user, r)
	s.addKernel(&trace, r.Frames[:r.KernelFrames])
	return s.trace(trace)
}

// addUser adds the user frames of a record to a trace, until it is cut.
func (s *Store) addUser(trace *Trace, pid int, frames []uint64, r *bpf.StackRecord) {
	// If not even the interrupted instruction is in known code, the mappings are
	// unknown, and the stack is not broken.
	mapped := false
	if len(frames) > 1 {
		leaf, _ := userAddress(frames[0])
		mapped = s.resolver.Resolve(pid, leaf, r.Time).Kind != process.KindUnknown
	}
	if trace.UserEnd.Marker() != "" {
		trace.Leaf = s.push(0, Frame{Code: s.code(Code{Kind: CodeUnseen, End: trace.UserEnd}, Range{})})
	}
	interpreted := s.readWords(frames)
	if interpreted {
		s.Interpreted[pid] = true
	}
	for i := len(s.words) - 1; i >= 0 && !trace.Cut; i-- {
		below, word := trace.Leaf, s.words[i]
		if word.ofRuntime() && known.ReadsMemory(word.kind()) {
			var native userWord
			if word.second&bpf.FrameEntered != 0 && i > 0 {
				i-- // the function's frame replaces the native one
				native = s.words[i]
			}
			call := native.frame(i).Call()
			at := s.resolver.Resolve(pid, call, r.Time)
			trace.Leaf, trace.Cut = s.readFrame(trace.Leaf, pid, r.Time, r.Epoch, word, call, at.Kind == process.KindAnon)
			continue
		}
		if word.ofRuntime() {
			trace.Leaf, trace.Cut = s.runtimeFrame(trace.Leaf, r.Epoch, word)
			continue
		}
		frame := word.frame(i)
		if interpreted && s.hides(pid, frame, r.Time) {
			continue
		}
		trace.Leaf = s.step(step{epoch: r.Epoch, addr: frame.Address, parent: trace.Leaf, isReturn: frame.Return}, func(f step) (NodeID, bool) {
			at := s.resolver.Resolve(pid, frame.Call(), r.Time)
			if mapped && at.Kind == process.KindUnknown {
				return s.broken, true
			}
			final := true
			if at.Kind == process.KindAnon && !at.Described() { // a perf map has more: patterns of regular expressions
				var named NodeID
				if named, final = s.unidentifiedFrame(f.parent, pid, r.Time, r.Epoch, frame.Call()); named != 0 {
					return named, true
				}
			}
			s.unfinished = s.unfinished || !final
			return s.enter(f, at, func() Frame { return s.userFrame(pid, frame, at, r) }), final
		})
		trace.Broken = trace.Broken || trace.Leaf == s.broken
		trace.Cut = trace.Leaf == below && below != s.broken
	}
	if trace.UserEnd == stackend.NoMapping {
		trace.Broken = false // the kernel's walk detects this itself
		if s.endsInFile(pid, r.Time) {
			// Code that was just mapped: the kernel did not know the mapping yet.
			trace.UserEnd = stackend.NotReady
		}
	}
}

// endsInFile reports whether the outermost frame in s.words is native code of a file.
func (s *Store) endsInFile(pid int, time uint64) bool {
	last := len(s.words) - 1
	if last < 0 || s.words[last].ofRuntime() {
		return false
	}
	return s.resolver.Resolve(pid, s.words[last].frame(last).Call(), time).Kind == process.KindFile
}

// lowestKernel is the lowest address of the kernel's half of the address space.
const lowestKernel = 1 << 63

// addKernel adds kernel frames to a trace, until it is cut.
func (s *Store) addKernel(trace *Trace, frames []uint64) {
	for i := len(frames) - 1; i >= 0 && !trace.Cut; i-- {
		below := trace.Leaf
		trace.Leaf = s.step(step{addr: frames[i], parent: trace.Leaf, isReturn: i > 0}, func(f step) (NodeID, bool) {
			if s.KernelName != nil && f.addr < lowestKernel {
				return s.push(f.parent, Frame{Code: s.code(Code{Kind: CodeNamed, Name: s.KernelName(f.addr)}, Range{})}), true
			}
			return s.push(f.parent, Frame{Address: f.addr, Return: f.isReturn}), true
		})
		trace.Cut = trace.Leaf == below
	}
}

// readWords splits user frames into s.words. It reports whether frames of a language
// runtime are among them.
func (s *Store) readWords(frames []uint64) (interpreted bool) {
	s.words = s.words[:0]
	for i := 0; i < len(frames); i++ {
		word := userWord{first: frames[i]}
		if word.ofRuntime() && i+1 < len(frames) {
			i++
			word.second = frames[i]
			interpreted = true
		}
		s.words = append(s.words, word)
	}
	return interpreted
}

// own records the owner of a process.
func (s *Store) own(pid int, o Ownership) {
	if s.Owners == nil {
		return
	}
	if known := s.Owned[pid]; len(known) == 0 || known[len(known)-1].Owner != o.Owner {
		s.Owned[pid] = append(known, o)
	}
}

// hides reports whether a stack with frames of a language runtime leaves out native frame f.
func (s *Store) hides(pid int, f Frame, time uint64) bool {
	if s.Hides == nil {
		return false
	}
	at := s.resolver.Resolve(pid, f.Call(), time)
	return at.Kind == process.KindFile && s.Hides(at.File)
}

// userAddress splits a user frame of a record into its address, and whether the
// address is exact although the frame is not the leaf.
func userAddress(frame uint64) (addr uint64, exact bool) {
	addr, exact = frame&^bpf.FrameExact, frame&bpf.FrameExact != 0
	if addr>>62 != 0 {
		addr |= bpf.FrameExact // the vsyscall page, in the kernel's half
	}
	return addr, exact
}

func (s *Store) trace(b Trace) TraceID {
	id, ok := s.traces[b]
	if !ok {
		id = TraceID(len(s.Traces))
		s.Traces = append(s.Traces, b)
		s.traces[b] = id
	}
	return id
}

// step returns the stack for key. If the step is not cached, node finds it, and reports whether a later
// call would find the same.
func (s *Store) step(key step, node func(step) (at NodeID, final bool)) NodeID {
	if s.recent == nil {
		s.recent = make([]step, recentSteps)
	}
	hash := (key.epoch ^ key.addr ^ key.second ^ uint64(key.parent)<<32) * bpf.HashMultiplier
	kept := &s.recent[hash>>32%recentSteps]
	key.node = kept.node
	if kept.node == 0 || *kept != key {
		var final bool
		if key.node, final = node(key); final {
			*kept = key
		}
	}
	return key.node
}

// enter returns the stack for key, whose address is at the given location. It calls frame
// only if no process has made the step lately.
func (s *Store) enter(key step, at process.Location, frame func() Frame) NodeID {
	if at.Kind != process.KindFile {
		return s.push(key.parent, frame())
	}
	if s.shared == nil {
		s.shared = make([]sharedStep, sharedSteps)
	}
	hash := (at.Offset ^ uint64(key.parent)<<32) * bpf.HashMultiplier
	kept := &s.shared[hash>>32%sharedSteps]
	want := sharedStep{file: at.File, offset: at.Offset, parent: key.parent, node: kept.node, isReturn: key.isReturn}
	if kept.node == 0 || *kept != want {
		want.node = s.push(key.parent, frame())
		*kept = want
	}
	return want.node
}

// userFrame resolves f, a frame of record r of process pid, to the code at its location.
func (s *Store) userFrame(pid int, f Frame, at process.Location, r *bpf.StackRecord) Frame {
	var code Code
	switch at.Kind {
	case process.KindFile:
		code = Code{Kind: CodeFile, File: at.File}
	case process.KindVDSO:
		code = Code{Kind: CodeVDSO}
		at.Offset -= at.MapStart
	case process.KindAnon:
		code = Code{Kind: CodeJIT, PID: pid, PerfMap: at.PerfMap, JITDumps: at.JITDumps}
	default:
		code = Code{Kind: CodeUnknown, PID: pid}
	}
	f.Code = s.code(code, Range{at.MapStart, at.MapLimit, at.MapOffset})
	if s.Language != nil && (code.Kind == CodeFile || code.Kind == CodeJIT) {
		if language := s.Language(pid, code.File); language != "" {
			s.Languages[f.Code] = language
		}
	}
	if s.Omits != nil && code.Kind == CodeJIT && s.Omits(pid) {
		s.Omitting[f.Code] = true
	}
	f.Address = at.Offset + (f.Address - f.Call())
	if code.JITDumps != nil {
		f.Epoch = uint32(r.Epoch) // a hash
		if _, seen := s.Seen[f]; !seen {
			s.Seen[f] = r.Time
		}
	}
	return f
}

func (s *Store) code(c Code, r Range) CodeID {
	id, ok := s.codes[c]
	if !ok {
		id = CodeID(len(s.Codes))
		s.Codes = append(s.Codes, c)
		s.Ranges = append(s.Ranges, r)
		s.codes[c] = id
	}
	return id
}

// push returns the stack of a frame called from parent, or parent if there is no
// room.
func (s *Store) push(parent NodeID, f Frame) NodeID {
	frame, ok := s.frames.Find(s.Frames, f)
	if !ok && s.full() {
		return parent
	}
	if !ok {
		frame = s.frames.Add(&s.Frames, f)
	}
	return s.node(Node{Parent: parent, Frame: frame})
}

func (s *Store) full() bool { return s.MaxNodes > 0 && len(s.Nodes) >= s.MaxNodes }

// node returns the ID of a node, or its parent's if there is no room for it.
func (s *Store) node(n Node) NodeID {
	id, ok := s.nodes.Find(s.Nodes, n)
	if !ok && s.full() {
		return n.Parent
	}
	if !ok {
		id = s.nodes.Add(&s.Nodes, n)
	}
	return id
}
