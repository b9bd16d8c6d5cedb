package main

import (
	"errors"
	"fmt"
	"sync"

	"fulgur/internal/capture/target"
	"fulgur/internal/message/usage"
)

// nameFlags makes the messages of all packages name options by their flags.
var nameFlags = sync.OnceFunc(func() { usage.NameFlags(optionFlags) })

// optionFlags are the flags of options. The packages below do not know flags.
var optionFlags = map[usage.Option]string{
	usage.After:          "--after",
	usage.AllBinaries:    "--all-binaries",
	usage.Basic:          "--basic",
	usage.Between:        "--between",
	usage.Binary:         "--binary",
	usage.Bolt:           "--bolt",
	usage.BoltDir:        "--bolt-dir",
	usage.BoltEvery:      "--bolt-every",
	usage.BoltWindow:     "--bolt-window",
	usage.Branches:       "--branches",
	usage.Burst:          "--burst",
	usage.CPUs:           "-C",
	usage.Cgroup:         "--cgroup",
	usage.Check:          "--check",
	usage.Children:       "--children",
	usage.CountEntries:   "--count-entries",
	usage.Event:          "--event",
	usage.Force:          "--force",
	usage.Format:         "--format",
	usage.Frequency:      "--frequency",
	usage.IncludeIdle:    "-I",
	usage.Keep:           "--keep",
	usage.Kernel:         "--kernel",
	usage.Key:            "--key",
	usage.LLVM:           "--llvm",
	usage.Listen:         "--listen",
	usage.MaxDepth:       "--max-depth",
	usage.MaxMemory:      "--max-memory",
	usage.MaxOverhead:    "--max-overhead",
	usage.MaxProbes:      "--max-probes",
	usage.MaxRate:        "--max-rate",
	usage.MaxStall:       "--max-stall",
	usage.NoProbes:       "--no-probes",
	usage.Optimize:       "--optimize",
	usage.Output:         "-o",
	usage.Over:           "--over",
	usage.PendingEntries: "--pending-entries",
	usage.PerCPU:         "--per-cpu",
	usage.Process:        "-p",
	usage.Rest:           "--rest",
	usage.RingSize:       "--ring-size",
	usage.SeenEntries:    "--seen-entries",
	usage.Slices:         "--slices",
	usage.Show:           "--show",
	usage.Slowest:        "--slowest",
	usage.StackNodes:     "--stack-nodes",
	usage.Symfs:          "--symfs",
	usage.UnwindMemory:   "--unwind-memory",
	usage.Triggers:       "--on",
	usage.Until:          "--until",
	usage.Uretprobes:     "--allow-uretprobe",
	usage.Value:          "--value",
	usage.Verbose:        "--verbose",
	usage.Wall:           "--wall",
}

// remedy returns the flags that solve err, if its message does not name them.
func remedy(err error) string {
	if thread := (target.ThreadError{}); errors.As(err, &thread) {
		return fmt.Sprintf(": profile its process with -p %d, or only the thread with fulgur profile -L %d", thread.PID, thread.TID)
	}
	return ""
}
