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
		"not counted: no room", "raise --count-entries and --ring-size")
	add(l.Unsent, "sample lost", "samples lost",
		"not counted: the ring was full", "raise --ring-size")
	add(l.Skipped, "sample skipped", "samples skipped",
		"by the kernel, on any CPU: a late timer or another BPF program", "if many, lower the rate")
	add(l.Throttled, "sampling pause", "sampling pauses",
		"throttled by the kernel", "lower the rate or raise sysctl kernel.perf_event_max_sample_rate")
	add(l.Traces, "sample without stack", "samples without stack",
		"shown as [stack lost]", "raise --ring-size")
	add(l.TruncatedUser, "user stack truncated", "user stacks truncated",
		"at the depth limit", maxDepth)
	add(l.TruncatedKernel, "kernel stack truncated", "kernel stacks truncated",
		"at the depth limit", maxDepth)
	add(l.Crowded, "stack truncated", "stacks truncated",
		"too many distinct stacks", "raise --stack-nodes, or record fewer processes")
	add(l.TooDeep, "stack truncated", "stacks truncated",
		fmt.Sprintf("after %d frames", profile.MaxDepth), "")
	add(l.TooMany, "sample with an incomplete stack", "samples with incomplete stacks",
		"too many distinct stacks in the input", "convert a part of it")
	add(l.LongNames, "name truncated", "names truncated",
		fmt.Sprintf("after %d bytes", profile.MaxName), "")
	add(l.Unnamed, "task name change ignored", "task name changes ignored",
		"too many in the input: samples may have older names", "convert a part of it")
	add(l.UserFaults, "unreadable user stack", "unreadable user stacks",
		"paged out, process exiting, or no frame pointers", "")
	add(l.BrokenUser, "broken user stack", "broken user stacks",
		"frame pointers lead to no code", "build with -fno-omit-frame-pointer")
	add(l.NotReady, "user stack by frame pointers", "user stacks by frame pointers",
		"unwind tables were not loaded yet", "")
	add(l.Evicted, "user stack truncated", "user stacks truncated",
		"unwind table was evicted", "raise --unwind-memory")
	add(l.NoTable, "user stack truncated", "user stacks truncated",
		"code without an unwind table", "use --unwind auto")
	add(l.Unsupported, "user stack truncated", "user stacks truncated",
		"unsupported unwind rule", "")
	add(l.NoMapping, "user stack truncated", "user stacks truncated",
		"no known code at the address", "")
	add(l.NotGrowing, "user stack truncated", "user stacks truncated",
		"the stack contradicts the unwind table", "")
	add(l.UnwindFiles, "file with unreadable unwind information", "files with unreadable unwind information",
		"stacks may end in them", "")
	add(l.UnwindMemory, "file without unwind table", "files without unwind table",
		"no room", "raise --unwind-memory")
	add(l.UnwindProcesses, "process not fully unwound by tables", "processes not fully unwound by tables",
		"too many mappings", "profile fewer processes at once")
	add(l.Sideband, "mapping record lost", "mapping records lost",
		"names may be missing", "")
	add(l.Untracked, "child process not followed", "child processes not followed",
		"the target set was full", "profile a --cgroup")
	add(l.Missed, "wait missed", "waits missed",
		"not counted: the kernel did not report the end", "")
	add(l.Unfollowed, "wait or request not tracked", "waits or requests not tracked",
		"too many at once", "measure less at once, or raise --pending-entries of offcpu and blockio")
	add(l.Remaps, "replaced mapping not marked", "replaced mappings not marked",
		"stacks may show names of older code", "profile fewer processes at once")
	add(l.ProcessesGone, "process exited early", "processes exited early",
		"before its mappings were read", "")
	places := "shown by address" // if the places were not counted
	if l.UnresolvedFrames > 0 {
		places = "at " + counted(l.UnresolvedFrames, "place", "places")
	}
	add(l.Unresolved, "sample with unnamed code", "samples with unnamed code",
		places, "install debug symbols or write perf maps")
	add(l.Overflows, "sample sent through the ring", "samples sent through the ring",
		"nothing is missing", "raise --count-entries")
	add(l.Retries, "stack sent again", "stacks sent again",
		"nothing is missing", "raise --ring-size")
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
