package describe

import (
	"fmt"
	"time"

	"fulgur/internal/profile"
)

// Loss is one cause for which a profile lacks something, or nearly did.
type Loss struct {
	// What says how much of what: "3 samples lost".
	What string
	// Effect says how, or what that means for the profile, and Remedy what
	// to do about it; Remedy is empty where nothing can be done.
	Effect, Remedy string

	n         uint64
	one, many string
}

// Brief returns what is lost in l, the gravest first, for where there is room for
// little: causes of which the same can be said are taken together, and what came
// late but is there is left out.
func Brief(l profile.Losses) []string {
	l.Overflows, l.Retries = 0, 0
	var whats []string
	sums := map[string]uint64{}
	all := Losses(l)
	for _, loss := range all {
		sums[loss.many] += loss.n
	}
	for _, loss := range all {
		if n, ok := sums[loss.many]; ok {
			whats = append(whats, counted(n, loss.one, loss.many))
			delete(sums, loss.many)
		}
	}
	return whats
}

// maxDepth is the remedy for stacks that were cut at the depth limit. The
// kernel walks no deeper than the sysctl allows, 127 frames if unchanged.
const maxDepth = "raise --max-depth and sysctl kernel.perf_event_max_stack"

// Losses returns the causes whose count in l is not zero, the gravest first.
func Losses(l profile.Losses) []Loss {
	var losses []Loss
	add := func(n uint64, one, many, effect, remedy string) {
		if n > 0 {
			losses = append(losses, Loss{counted(n, one, many), effect, remedy, n, one, many})
		}
	}
	add(l.Samples, "sample lost", "samples lost",
		"in no count", "raise --count-entries and --ring-size")
	add(l.Unsent, "sample lost", "samples lost",
		"in no count: the ring was full", "raise --ring-size")
	add(l.Skipped, "sample skipped", "samples skipped",
		"by the kernel, on any CPU: a timer was late or another BPF program ran", "if there are many, lower the rate")
	add(l.Throttled, "pause of sampling", "pauses of sampling",
		"by the kernel", "lower the rate or raise sysctl kernel.perf_event_max_sample_rate")
	add(l.Traces, "sample without stack", "samples without stack",
		"shown as [stack lost]", "raise --ring-size")
	add(l.TruncatedUser, "user stack cut", "user stacks cut",
		"at the depth limit", maxDepth)
	add(l.TruncatedKernel, "kernel stack cut", "kernel stacks cut",
		"at the depth limit", maxDepth)
	add(l.Crowded, "stack cut", "stacks cut",
		"where it differs from all others: there were too many", "raise --stack-nodes, or record fewer processes")
	add(l.TooDeep, "stack cut", "stacks cut",
		fmt.Sprintf("after %d frames", profile.MaxDepth), "")
	add(l.TooMany, "sample without its whole stack", "samples without their whole stacks",
		"the input has more stacks than fit", "convert a part of it")
	add(l.LongNames, "name cut", "names cut",
		fmt.Sprintf("after %d bytes", profile.MaxName), "")
	add(l.Unnamed, "change of a task's name left out", "changes of tasks' names left out",
		"the input has too many: samples may have older names", "convert a part of it")
	add(l.UserFaults, "unreadable user stack", "unreadable user stacks",
		"paged out, of a process that ends, or no frame pointers", "")
	add(l.BrokenUser, "broken user stack", "broken user stacks",
		"the frame pointers lead to no code", "build with -fno-omit-frame-pointer")
	add(l.NotReady, "user stack by frame pointers", "user stacks by frame pointers",
		"the unwind tables were not loaded yet", "")
	add(l.Evicted, "user stack cut", "user stacks cut",
		"the unwind table was not loaded any more", "raise --unwind-memory")
	add(l.NoTable, "user stack cut", "user stacks cut",
		"where code has no unwind table", "leave out --unwind dwarf if it was given")
	add(l.Unsupported, "user stack cut", "user stacks cut",
		"at an unwind rule that is not supported", "")
	add(l.NoMapping, "user stack cut", "user stacks cut",
		"where no code was known to be mapped", "")
	add(l.NotGrowing, "user stack cut", "user stacks cut",
		"where the stack contradicts the unwind table", "")
	add(l.UnwindFiles, "file with unreadable unwind information", "files with unreadable unwind information",
		"stacks may end there", "")
	add(l.UnwindMemory, "file without unwind table", "files without unwind table",
		"there was no room", "raise --unwind-memory")
	add(l.UnwindProcesses, "process not unwound by tables", "processes not unwound by tables",
		"or in part: too many mappings", "profile fewer processes at once")
	add(l.Sideband, "mapping record lost", "mapping records lost",
		"names may be missing", "")
	add(l.Untracked, "child process not followed", "child processes not followed",
		"the target set was full", "profile a --cgroup")
	add(l.Missed, "wait missed", "waits missed",
		"in no count: the kernel did not tell of the end", "")
	add(l.Unfollowed, "beginning not remembered", "beginnings not remembered",
		"too much was under way at once", "measure less at once, or raise --pending-entries of offcpu and blockio")
	add(l.Remaps, "replaced mapping unmarked", "replaced mappings unmarked",
		"stacks may have the names of older code", "profile fewer processes at once")
	add(l.ProcessesGone, "process gone", "processes gone",
		"before any mapping was read", "")
	places := "shown by address" // for who does not count them
	if l.UnresolvedFrames > 0 {
		places = "at " + counted(l.UnresolvedFrames, "place", "places")
	}
	add(l.Unresolved, "sample with unnamed code", "samples with unnamed code",
		places, "install debug symbols or write perf maps")
	add(l.Overflows, "sample took the ring", "samples took the ring",
		"nothing missing", "raise --count-entries")
	add(l.Retries, "stack sent again", "stacks sent again",
		"nothing missing", "raise --ring-size")
	return losses
}

// counted returns n and the noun in its number.
func counted(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// roundDuration cuts d to what a reader wants to know of it.
func roundDuration(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}
