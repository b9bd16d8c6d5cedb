// Package bpf holds the objects of the programs in fulgur/bpf, and the Go bindings that bpf2go
// generates for them: a load function for each family of programs, the names of its maps,
// variables and programs, and its types. The objects are under the license of their sources
// (bpf/LICENSE). shared.go is written by hand.
package bpf

// Types and constants that several families of probes share have one name here. bpf2go
// generates them for one of the families.

// Records that cross into user space, and state that programs keep about them.
type (
	// StackRecord is struct stack_record of record.h.
	StackRecord = OnCPUStackRecord
	// RuleMatch is struct rule_match of record.h.
	RuleMatch = OnCPURuleMatch
	// FileRecord is struct file_record of file.h.
	FileRecord = FaultsFileRecord
	// Snapshot is struct snapshot of snapshot.h.
	Snapshot = OnCPUSnapshot
	// CodeHead is struct code_head of runtime_maps.h. In a record, a line table follows.
	CodeHead = OnCPUCodeHead
	// LabelRecord is struct label_record of label_maps.h.
	LabelRecord = OnCPULabelRecord
	// ThreadContext is struct thread_context of label_maps.h.
	ThreadContext = OnCPUThreadContext
	// GateTimes is struct gate_times of gate.h.
	GateTimes = OnCPUGateTimes
	// SeenSet is struct seen_set of seen.h.
	SeenSet = OnCPUSeenSet
)

const (
	// MaxDepth is the maximum number of frames of each half of a stack, and of frames of a
	// language runtime, which take two words each.
	MaxDepth = len(StackRecord{}.Frames) / 4
	// FrameExact is set in a user frame that is exact though it is not the
	// leaf: a signal interrupted it, so it is not a return address.
	FrameExact = 1 << OnCPUFrameBitFRAME_EXACT_BIT
	// FrameRuntimeShift is the bit that marks a frame of a language runtime, if the next
	// one is 0; see record.h.
	FrameRuntimeShift = OnCPUFrameBitFRAME_RUNTIME_SHIFT
	// FrameKindShift is the lowest bit of such a frame's kind.
	FrameKindShift = OnCPUFrameBitFRAME_KIND_SHIFT
	// FrameKinds is the mask of the kind, and the kind of native code.
	FrameKinds = 1<<(FrameRuntimeShift-FrameKindShift) - 1
	// FrameEntered is the bit of such a frame's second word that is not of the position.
	FrameEntered = 1 << OnCPUFrameBitFRAME_ENTERED_BIT
)

// HashMultiplier is the multiplier of all hashes, see hash_step() of hash.h.
const HashMultiplier = uint64(UnwindHashConstantHASH_MULTIPLIER)

// SyscallsCookie is the bit of the attach cookie of raw_syscalls; see field.h.
const SyscallsCookie = 1 << CountFieldLimitsFIELD_SYSCALLS_BIT

// RecordType is the first word of every record in the ring.
type RecordType = OnCPURecordType

// The types of records.
const (
	RecordStack    = OnCPURecordTypeRECORD_STACK
	RecordEvent    = OnCPURecordTypeRECORD_EVENT // a single count, see count.h
	RecordFile     = OnCPURecordTypeRECORD_FILE
	RecordTimeline = OnCPURecordTypeRECORD_TIMELINE // see event.h
	RecordSnapshot = OnCPURecordTypeRECORD_SNAPSHOT
	RecordCode     = OnCPURecordTypeRECORD_CODE
	RecordLabels   = OnCPURecordTypeRECORD_LABELS
)

// LabelProcess describes to the kernel side how a process keeps labels.
type LabelProcess = UnwindLabelProcess

// LabelKind is how a process keeps its labels.
type LabelKind = UnwindLabelKind

// Kinds of labels; see enum label_kind of label_maps.h.
const (
	LabelsGoMap             = UnwindLabelKindLABELS_GO_MAP   // Go before version 1.24
	LabelsGoSlice           = UnwindLabelKindLABELS_GO_SLICE // later versions
	LabelsContextOffset     = UnwindLabelKindLABELS_CONTEXT_OFFSET
	LabelsContextSlot       = UnwindLabelKindLABELS_CONTEXT_SLOT
	LabelsContextDescriptor = UnwindLabelKindLABELS_CONTEXT_DESCRIPTOR
	LabelsContextModule     = UnwindLabelKindLABELS_CONTEXT_MODULE
	LabelsContextIndex      = UnwindLabelKindLABELS_CONTEXT_INDEX
)

// RuntimeProcess describes the language runtimes of a process to the kernel side, at most one of each
// kind.
type RuntimeProcess = UnwindRuntimeProcess

// RuntimeRange is a range of addresses. The end is behind the last one.
type RuntimeRange = UnwindRuntimeRange

// RuntimeLocal describes a thread-local variable to the kernel side.
type RuntimeLocal = UnwindRuntimeLocal

// RuntimeProgram describes a language runtime of a program's processes to the kernel side.
type RuntimeProgram = UnwindRuntimeProgram

// RuntimeFile describes how the kernel side recognizes a file that a process maps.
type RuntimeFile = UnwindRuntimeFile

// Limits of programs with a language runtime; see runtime_maps.h.
const (
	ProgramHead      = uint64(UnwindRuntimeProgramLimitPROGRAM_HEAD)
	ProgramAddresses = int(UnwindRuntimeProgramLimitPROGRAM_ADDRESSES)
)

// RuntimeKind is the kind of a language runtime.
type RuntimeKind = UnwindRuntimeKind

// RuntimeNone is the kind of no runtime.
const RuntimeNone = UnwindRuntimeKindRUNTIME_NONE

// RuntimePython is CPython; see enum runtime_kind of record.h.
const RuntimePython = UnwindRuntimeKindRUNTIME_PYTHON

// RuntimeV8 is V8, as in Node.js; see enum runtime_kind of record.h.
const RuntimeV8 = UnwindRuntimeKindRUNTIME_V8

// RuntimeHotSpot is HotSpot, the JVM of OpenJDK; see enum runtime_kind of record.h.
const RuntimeHotSpot = UnwindRuntimeKindRUNTIME_HOTSPOT

// RuntimeRuby is CRuby; see enum runtime_kind of record.h.
const RuntimeRuby = UnwindRuntimeKindRUNTIME_RUBY

// HotSpotHead and HotSpotTail are the bytes that the kernel side reads of HotSpot's blobs;
// see runtime_maps.h.
const (
	HotSpotHead = int(UnwindHotspotBytesHOTSPOT_HEAD)
	HotSpotTail = int(UnwindHotspotBytesHOTSPOT_TAIL)
)

// PathEnd is how the path of a file ends.
type PathEnd = FaultsPathEnd

// The ends of paths; see enum path_end of file.h.
const (
	PathWhole  = FaultsPathEndPATH_WHOLE
	PathCut    = FaultsPathEndPATH_CUT
	PathDevice = FaultsPathEndPATH_DEVICE
)

// UnwindMode is how stacks are walked.
type UnwindMode = OnCPUUnwindMode

// The ways to walk stacks; see enum unwind_mode of unwind_state.h.
const (
	UnwindByFramePointers = OnCPUUnwindModeUNWIND_BY_FRAME_POINTERS
	UnwindByTables        = OnCPUUnwindModeUNWIND_BY_TABLES
	UnwindByBoth          = OnCPUUnwindModeUNWIND_BY_BOTH
)

// TargetMode selects the tasks to measure.
type TargetMode = OnCPUTargetMode

// The kinds of targets; see enum target_mode of target.h.
const (
	TargetAll       = OnCPUTargetModeTARGET_ALL
	TargetCgroup    = OnCPUTargetModeTARGET_CGROUP
	TargetProcesses = OnCPUTargetModeTARGET_PROCESSES
	TargetThreads   = OnCPUTargetModeTARGET_THREADS
)

// Stat is an index of the per-CPU statistics.
type Stat = OnCPUStat

// The statistics; see enum stat of record.h.
const (
	StatSamples      = OnCPUStatSTAT_SAMPLES
	StatLost         = OnCPUStatSTAT_LOST
	StatRetry        = OnCPUStatSTAT_RETRY
	StatEvent        = OnCPUStatSTAT_EVENT
	StatUntracked    = OnCPUStatSTAT_UNTRACKED
	StatRuns         = OnCPUStatSTAT_RUNS
	StatPeriods      = OnCPUStatSTAT_PERIODS
	StatEmpty        = OnCPUStatSTAT_EMPTY
	StatUnfollowed   = OnCPUStatSTAT_UNFOLLOWED
	StatMajorRuns    = OnCPUStatSTAT_MAJOR_RUNS
	StatMajorPeriods = OnCPUStatSTAT_MAJOR_PERIODS
	StatMerged       = OnCPUStatSTAT_MERGED
	StatUnfinished   = OnCPUStatSTAT_UNFINISHED
	StatFollowed     = OnCPUStatSTAT_FOLLOWED
	StatForgotten    = OnCPUStatSTAT_FORGOTTEN
	StatAmbiguous    = OnCPUStatSTAT_AMBIGUOUS
	StatMissed       = OnCPUStatSTAT_MISSED
	StatIdlePeriods  = OnCPUStatSTAT_IDLE_PERIODS
	StatLimited      = OnCPUStatSTAT_LIMITED
	StatNegative     = OnCPUStatSTAT_NEGATIVE
	StatCrowded      = OnCPUStatSTAT_CROWDED
	StatUnlabeled    = OnCPUStatSTAT_UNLABELED
	StatUnsearched   = OnCPUStatSTAT_UNSEARCHED
	StatExcluded     = OnCPUStatSTAT_EXCLUDED
	StatExcludedTime = OnCPUStatSTAT_EXCLUDED_PERIODS
	StatThinned      = OnCPUStatSTAT_THINNED
	StatNested       = OnCPUStatSTAT_NESTED
	StatMoved        = OnCPUStatSTAT_MOVED
	StatUndecided    = OnCPUStatSTAT_UNDECIDED
	StatMax          = int(OnCPUStatSTAT_MAX) // the number of counters
)

// The maps that all families have, except that branch.bpf.c neither interns nor
// counts stacks.
const (
	MapRing         = OnCPUMapRing
	MapStats        = OnCPUMapStats
	MapSeen         = OnCPUMapSeen
	MapCounts0      = OnCPUMapCounts0
	MapCounts1      = OnCPUMapCounts1
	MapRemaps       = OnCPUMapRemaps
	MapTargetIDs    = OnCPUMapTargetIds
	MapTargetCgroup = OnCPUMapTargetCgroup

	// MapGate holds the variable of gate.h.
	MapGate = ".data.gate"

	MapUnwindCache    = OnCPUMapUnwindCache
	MapCodeScratch    = OnCPUMapCodeScratch
	MapLabelScratches = OnCPUMapLabelScratches
)

// The variables that all families but branch.bpf.c have.
const (
	VarActive         = OnCPUVarActive
	VarAnyRemaps      = OnCPUVarAnyRemaps
	VarByCPU          = OnCPUVarByCpu
	VarByCgroup       = OnCPUVarByCgroup
	VarByThread       = OnCPUVarByThread
	VarGeneration     = OnCPUVarGeneration
	VarInserted       = OnCPUVarInserted
	VarLabelKey       = OnCPUVarLabelKey
	VarLabelKeySize   = OnCPUVarLabelKeySize
	VarMaxDepth       = OnCPUVarMaxDepth
	VarReadLabels     = OnCPUVarReadLabels
	VarRingWakeup     = OnCPUVarRingWakeup
	VarSeenMask       = OnCPUVarSeenMask
	VarSkipRuntimes   = OnCPUVarSkipRuntimes
	VarSkipSpanID     = OnCPUVarSkipSpanId
	VarSkipTraceID    = OnCPUVarSkipTraceId
	VarSkipUserStack  = OnCPUVarSkipUserStack
	VarTarget         = OnCPUVarTarget
	VarTargetCgroupID = OnCPUVarTargetCgroupId
	VarTargetOnly     = OnCPUVarTargetOnly
	VarTimeline       = OnCPUVarTimeline
	VarUnwind         = OnCPUVarUnwind
)

// The variables that several families have.
const (
	VarRulesInclude      = OnCPUVarRulesInclude
	VarRulesExclude      = OnCPUVarRulesExclude
	VarRulesSlow         = OnCPUVarRulesSlow
	VarRulesTestUser     = OnCPUVarRulesTestUser
	VarRulesTestGroup    = OnCPUVarRulesTestGroup
	VarRulesTestProgram  = OnCPUVarRulesTestProgram
	VarRulesAnyUser      = OnCPUVarRulesAnyUser
	VarRulesAnyGroup     = OnCPUVarRulesAnyGroup
	VarRulesAnyProgram   = OnCPUVarRulesAnyProgram
	VarRulesGroupByImage = OnCPUVarRulesGroupByImage
	VarRulesMinAge       = OnCPUVarRulesMinAge
	VarSkipKernelStack   = OnCPUVarSkipKernelStack
	VarSnapshots         = OnCPUVarSnapshots
)

// The programs that maintain the target set, which all families have.
const (
	ProgTargetFork = OnCPUProgTargetFork
	ProgTargetFree = OnCPUProgTargetFree
)

// ProgSnapshotAgain is the program that walks the stacks of snapshots; see snapshot.h.
const ProgSnapshotAgain = OnCPUProgSnapshotAgain
