package usage

import (
	"fmt"
	"sync/atomic"
)

// Option is an option of a command. Only the command line knows its flag: messages format
// an Option with %s.
type Option uint8

// The options that messages name.
const (
	AllBinaries Option = iota
	Basic
	Binary
	Branches
	Burst
	CPUs
	Cgroup
	Children
	CountEntries
	Event
	Force
	Format
	Frequency
	IncludeIdle
	LLVM
	MaxDepth
	MaxOverhead
	MaxProbes
	MaxRate
	Optimize
	Output
	PendingEntries
	PerCPU
	Process
	RingSize
	SeenEntries
	StackNodes
	Symfs
	UnwindMemory
	Value
	// NumOptions is the number of options.
	NumOptions
)

// words name the options where no command line has named its flags.
var words = [NumOptions]string{
	AllBinaries:    "all binaries",
	Basic:          "sampling without branches",
	Binary:         "the binary",
	Branches:       "the branch recorder",
	Burst:          "the length of a burst",
	CPUs:           "a choice of CPUs",
	Cgroup:         "the cgroup",
	Children:       "children",
	CountEntries:   "the limit of distinct stacks",
	Event:          "the event",
	Force:          "force",
	Format:         "the format",
	Frequency:      "the frequency",
	IncludeIdle:    "the option for idle CPUs",
	LLVM:           "the LLVM version",
	MaxDepth:       "the maximum depth",
	MaxOverhead:    "the maximum overhead",
	MaxProbes:      "the limit of probes",
	MaxRate:        "the limit of hits a second",
	Optimize:       "the optimized file",
	Output:         "the output",
	PendingEntries: "the limit of pending entries",
	PerCPU:         "separate CPUs",
	Process:        "the process",
	RingSize:       "the ring size",
	SeenEntries:    "the number of remembered stacks",
	StackNodes:     "the limit of stack nodes",
	Symfs:          "the directory of debug files",
	UnwindMemory:   "the memory for unwind tables",
	Value:          "the value",
}

// flags are the flags set by [NameFlags].
var flags atomic.Pointer[[NumOptions]string]

// NameFlags sets the flag of each option, such as "--ring-size". A command line calls it
// before it runs a command.
func NameFlags(of [NumOptions]string) { flags.Store(&of) }

// String returns the flag of o, or its name in words if no command line has called
// [NameFlags].
func (o Option) String() string {
	names := flags.Load()
	if names == nil {
		names = &words
	}
	if o >= NumOptions {
		return fmt.Sprintf("option %d", uint8(o))
	}
	return names[o]
}
