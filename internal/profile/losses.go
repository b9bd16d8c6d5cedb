package profile

// Loss is a cause for which a run did not record something, or only in part.
type Loss uint8

// The causes of losses, the gravest first, and what [Losses] counts for each.
const (
	// LossSamples: samples that were not counted at all: neither the count map nor the
	// ring had room.
	LossSamples Loss = iota
	// LossUnsent: samples of a recording that were not recorded at all: each crosses
	// the ring by itself, and that had no room.
	LossUnsent
	// LossSkipped: samples, of the target or not, that the kernel did not take:
	// another BPF program or operation ran on that CPU, or the timer was late by more
	// than a period.
	LossSkipped
	// LossThrottled: pauses of sampling on a CPU by the kernel.
	LossThrottled
	// LossTraces: samples that were counted but whose stack never reached user space;
	// they show as "[stack lost]".
	LossTraces
	// LossTruncatedUser: samples whose user stack was cut at the depth limit.
	LossTruncatedUser
	// LossTruncatedKernel: samples whose kernel stack was cut at the depth limit.
	LossTruncatedKernel
	// LossCrowded: samples whose stack was cut where it differs from all others, as
	// there was no room for more of them.
	LossCrowded
	// LossTooDeep: samples that were read from a file and whose stack was cut at
	// [MaxDepth].
	LossTooDeep
	// LossTooMany: samples that were read from a file and left without their stack,
	// because the tables would have exceeded [MaxTables] or [MaxFrames].
	LossTooMany
	// LossLongNames: names that were cut at [MaxName], as often as they were met.
	LossLongNames
	// LossUnnamed: changes of the name of a task that were left out because there were
	// too many in a file.
	LossUnnamed
	// LossUserFaults: samples whose user stack could not be read.
	LossUserFaults
	// LossBrokenUser: samples whose user stack was left where the chain of callers led
	// out of all code.
	LossBrokenUser
	// LossNotReady: samples whose user stack was found by frame pointers because the
	// process's unwind tables were not loaded yet.
	LossNotReady
	// LossEvicted: samples whose user stack ends where an unwind table was not loaded
	// any more.
	LossEvicted
	// LossNoTable: samples whose user stack ends in code without an unwind table.
	LossNoTable
	// LossUnsupported: samples whose user stack ends at a rule that the tables cannot
	// express.
	LossUnsupported
	// LossNoMapping: samples whose user stack ends where no code was known to be
	// mapped.
	LossNoMapping
	// LossNotGrowing: samples whose user stack contradicts the unwind table.
	LossNotGrowing
	// LossUnwindFiles: files whose unwind information could not be read.
	LossUnwindFiles
	// LossUnwindMemory: files whose unwind information did not fit into the memory for
	// it.
	LossUnwindMemory
	// LossUnwindProcesses: processes that had no room, or not for all their mappings,
	// where those are kept for unwinding.
	LossUnwindProcesses
	// LossSideband: mapping, fork and exit records that the kernel dropped.
	LossSideband
	// LossUntracked: child processes of the target that were not followed, because the
	// target set was full.
	LossUntracked
	// LossMissed: waits whose end the kernel did not report, as the next one of the
	// same thread shows: they are in no count.
	LossMissed
	// LossUnfollowed: waits and requests that found no room to be remembered until
	// their end.
	LossUnfollowed
	// LossRemaps: replacements of a process's code at its address without a mark
	// between the stacks before and after, because there were too many such processes.
	LossRemaps
	// LossProcessesGone: processes whose mappings could not be read because they had
	// exited.
	LossProcessesGone
	// LossUnresolved: samples whose own function, the leaf of the stack, has no name.
	LossUnresolved
	// LossUnresolvedCallers: other samples with at least one caller without a name.
	LossUnresolvedCallers
	// LossUnresolvedFrames: distinct functions without a name, and addresses at which no
	// function is known.
	LossUnresolvedFrames
	// LossOverflows: samples that went through the ring because the count map was full
	// or busy; nothing is missing for them.
	LossOverflows
	// LossRetries: traces that found the ring full and were sent again by a later
	// sample; nothing is missing for them.
	LossRetries

	// NumLosses is the number of causes.
	NumLosses = iota
)

// lossNames are the names of the causes in files, which must not change.
var lossNames = [NumLosses]string{
	LossSamples:           "samples",
	LossUnsent:            "unsent",
	LossSkipped:           "skipped",
	LossThrottled:         "throttled",
	LossTraces:            "traces",
	LossTruncatedUser:     "truncated_user",
	LossTruncatedKernel:   "truncated_kernel",
	LossCrowded:           "crowded",
	LossTooDeep:           "too_deep",
	LossTooMany:           "too_many",
	LossLongNames:         "long_names",
	LossUnnamed:           "unnamed",
	LossUserFaults:        "user_faults",
	LossBrokenUser:        "broken_user",
	LossNotReady:          "not_ready",
	LossEvicted:           "evicted",
	LossNoTable:           "no_table",
	LossUnsupported:       "unsupported",
	LossNoMapping:         "no_mapping",
	LossNotGrowing:        "not_growing",
	LossUnwindFiles:       "unwind_files",
	LossUnwindMemory:      "unwind_memory",
	LossUnwindProcesses:   "unwind_processes",
	LossSideband:          "sideband",
	LossUntracked:         "untracked",
	LossMissed:            "missed",
	LossUnfollowed:        "unfollowed",
	LossRemaps:            "remaps",
	LossProcessesGone:     "processes_gone",
	LossUnresolved:        "unresolved",
	LossUnresolvedCallers: "unresolved_callers",
	LossUnresolvedFrames:  "unresolved_frames",
	LossOverflows:         "overflows",
	LossRetries:           "retries",
}

// String returns the name of the cause in files, such as "truncated_user".
func (l Loss) String() string {
	if l < NumLosses {
		return lossNames[l]
	}
	return "unknown"
}

// Losses counts by cause what a run did not record, or only in part. The zero value
// means that nothing was lost.
type Losses [NumLosses]uint64

// Uncounted returns how many samples are in no count.
func (l Losses) Uncounted() uint64 { return l[LossSamples] + l[LossUnsent] }

// Plus returns the losses of two parts of a run.
func (l Losses) Plus(m Losses) Losses {
	for cause, n := range m {
		l[cause] += n
	}
	return l
}

// Minus returns the losses since m, the losses at an earlier time of the run. An
// estimate that has shrunk since then becomes 0.
func (l Losses) Minus(m Losses) Losses {
	for cause, n := range m {
		l[cause] -= min(l[cause], n)
	}
	return l
}
