package profile

// Losses is everything that a run did not record, or recorded in part, by
// cause. Counts are samples unless their comment says otherwise. The zero
// value means that nothing was lost.
type Losses struct {
	// Samples were not counted at all: neither the count map nor the ring
	// had room.
	Samples uint64
	// Unsent are samples of a recording that were not recorded at all: each
	// crosses the ring by itself, and that had no room.
	Unsent uint64
	// Traces are samples that were counted but whose stack never reached
	// user space; they show as "[stack lost]".
	Traces uint64
	// Retries counts stack bodies that found the ring full and were sent
	// again by a later sample; nothing is missing for them.
	Retries uint64
	// Overflows are samples that went through the ring because the count
	// map was full or busy; nothing is missing for them.
	Overflows uint64
	// TruncatedUser and TruncatedKernel are samples whose stack was cut at
	// the depth limit.
	TruncatedUser, TruncatedKernel uint64
	// UserFaults are samples whose user stack could not be read.
	UserFaults uint64
	// BrokenUser are samples whose user stack was left where the chain of
	// callers led out of all code.
	BrokenUser uint64
	// Crowded are samples whose stack was cut where it differs from all others,
	// as there was no room for more of them.
	Crowded uint64
	// NotReady are samples whose user stack was found by frame pointers because
	// the process's unwind tables were not loaded yet; Evicted those whose
	// user stack ends where a table was not loaded any more; NoTable those
	// where there is none; Unsupported those where it cannot be expressed;
	// NoMapping those where no code was known to be; NotGrowing those where
	// the stack contradicts the table.
	NotReady, Evicted, NoTable, Unsupported, NoMapping, NotGrowing uint64
	// UnwindFiles is how many files' unwind information could not be read,
	// UnwindMemory how many files' did not fit into the memory for it.
	UnwindFiles, UnwindMemory uint64
	// UnwindProcesses is how many processes had no room, or not for all their
	// mappings, where those are kept for unwinding.
	UnwindProcesses uint64
	// Skipped are samples, of the target or not, that the kernel did not
	// take: another BPF program or operation ran on that CPU, or the timer was
	// late by more than a period.
	Skipped uint64
	// Throttled counts how often the kernel paused sampling on a CPU.
	Throttled uint64
	// Sideband counts mapping, fork and exit records that the kernel
	// dropped.
	Sideband uint64
	// Unresolved counts samples with at least one frame that has no name.
	Unresolved uint64
	// UnresolvedFrames counts distinct frames without a name.
	UnresolvedFrames uint64
	// Untracked counts child processes of the target that were not followed,
	// because the target set was full.
	Untracked uint64
	// Unfollowed counts what was under way, threads that waited or requests,
	// and found no room to be remembered until its end.
	Unfollowed uint64
	// Missed counts waits whose end the kernel did not tell of, as the next one
	// of the same thread shows: they are in no count.
	Missed uint64
	// Remaps counts how often code of a process was replaced at its address
	// without a mark to tell the stacks before and after apart, because there
	// were too many such processes.
	Remaps uint64
	// ProcessesGone counts processes whose mappings could not be read
	// because they had exited.
	ProcessesGone uint64
	// TooDeep are samples that were read from a file and whose stack was cut at
	// [MaxDepth]; TooMany those that were left without their stack because the
	// tables would have exceeded [MaxTables] or [MaxFrames].
	TooDeep, TooMany uint64
	// LongNames counts names that were cut at [MaxName], as often as they were met.
	LongNames uint64
	// Unnamed counts changes of the name of a task that were left out because
	// there were too many in a file.
	Unnamed uint64
}

// Uncounted returns how many samples are in no count.
func (l Losses) Uncounted() uint64 { return l.Samples + l.Unsent }

// Plus returns the losses of two parts of a run.
func (l Losses) Plus(m Losses) Losses {
	l.Samples += m.Samples
	l.Unsent += m.Unsent
	l.Traces += m.Traces
	l.Retries += m.Retries
	l.Overflows += m.Overflows
	l.TruncatedUser += m.TruncatedUser
	l.TruncatedKernel += m.TruncatedKernel
	l.UserFaults += m.UserFaults
	l.BrokenUser += m.BrokenUser
	l.Crowded += m.Crowded
	l.NotReady += m.NotReady
	l.Evicted += m.Evicted
	l.NoTable += m.NoTable
	l.Unsupported += m.Unsupported
	l.NoMapping += m.NoMapping
	l.NotGrowing += m.NotGrowing
	l.UnwindFiles += m.UnwindFiles
	l.UnwindMemory += m.UnwindMemory
	l.UnwindProcesses += m.UnwindProcesses
	l.Skipped += m.Skipped
	l.Throttled += m.Throttled
	l.Sideband += m.Sideband
	l.Unresolved += m.Unresolved
	l.UnresolvedFrames += m.UnresolvedFrames
	l.Untracked += m.Untracked
	l.Unfollowed += m.Unfollowed
	l.Missed += m.Missed
	l.Remaps += m.Remaps
	l.ProcessesGone += m.ProcessesGone
	l.TooDeep += m.TooDeep
	l.TooMany += m.TooMany
	l.LongNames += m.LongNames
	l.Unnamed += m.Unnamed
	return l
}

// Minus returns the losses since m, which are those of a beginning of the run.
// Estimates may have shrunk since; they then are 0.
func (l Losses) Minus(m Losses) Losses {
	l.Samples -= min(l.Samples, m.Samples)
	l.Unsent -= min(l.Unsent, m.Unsent)
	l.Traces -= min(l.Traces, m.Traces)
	l.Retries -= min(l.Retries, m.Retries)
	l.Overflows -= min(l.Overflows, m.Overflows)
	l.TruncatedUser -= min(l.TruncatedUser, m.TruncatedUser)
	l.TruncatedKernel -= min(l.TruncatedKernel, m.TruncatedKernel)
	l.UserFaults -= min(l.UserFaults, m.UserFaults)
	l.BrokenUser -= min(l.BrokenUser, m.BrokenUser)
	l.Crowded -= min(l.Crowded, m.Crowded)
	l.NotReady -= min(l.NotReady, m.NotReady)
	l.Evicted -= min(l.Evicted, m.Evicted)
	l.NoTable -= min(l.NoTable, m.NoTable)
	l.Unsupported -= min(l.Unsupported, m.Unsupported)
	l.NoMapping -= min(l.NoMapping, m.NoMapping)
	l.NotGrowing -= min(l.NotGrowing, m.NotGrowing)
	l.UnwindFiles -= min(l.UnwindFiles, m.UnwindFiles)
	l.UnwindMemory -= min(l.UnwindMemory, m.UnwindMemory)
	l.UnwindProcesses -= min(l.UnwindProcesses, m.UnwindProcesses)
	l.Skipped -= min(l.Skipped, m.Skipped)
	l.Throttled -= min(l.Throttled, m.Throttled)
	l.Sideband -= min(l.Sideband, m.Sideband)
	l.Unresolved -= min(l.Unresolved, m.Unresolved)
	l.UnresolvedFrames -= min(l.UnresolvedFrames, m.UnresolvedFrames)
	l.Untracked -= min(l.Untracked, m.Untracked)
	l.Unfollowed -= min(l.Unfollowed, m.Unfollowed)
	l.Missed -= min(l.Missed, m.Missed)
	l.Remaps -= min(l.Remaps, m.Remaps)
	l.ProcessesGone -= min(l.ProcessesGone, m.ProcessesGone)
	l.TooDeep -= min(l.TooDeep, m.TooDeep)
	l.TooMany -= min(l.TooMany, m.TooMany)
	l.LongNames -= min(l.LongNames, m.LongNames)
	l.Unnamed -= min(l.Unnamed, m.Unnamed)
	return l
}
