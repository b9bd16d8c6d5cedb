package usage

import (
	"cmp"
	"sync/atomic"
)

// Option is an option of a command, described in words. Only the command line knows its
// flag: messages format an Option with %s.
type Option string

// The options that messages name.
const (
	After          Option = "the time after a trigger"
	AllBinaries    Option = "all binaries"
	Basic          Option = "sampling without branches"
	Binary         Option = "the binary"
	Between        Option = "two limits of slow intervals"
	Bolt           Option = "the programs"
	BoltDir        Option = "the directory of branch profiles"
	BoltEvery      Option = "the period of branch profiles"
	BoltWindow     Option = "the length of a branch profile"
	Branches       Option = "the branch recorder"
	Burst          Option = "the length of a burst"
	CPUs           Option = "a choice of CPUs"
	Cgroup         Option = "the cgroup"
	Check          Option = "the time to compare"
	Children       Option = "children"
	CountEntries   Option = "the limit of distinct stacks"
	Event          Option = "the event"
	Force          Option = "force"
	Format         Option = "the format"
	Frequency      Option = "the frequency"
	IncludeIdle    Option = "the option for idle CPUs"
	Keep           Option = "the time to keep"
	Kernel         Option = "the kernel"
	Key            Option = "the field to compare"
	LLVM           Option = "the LLVM version"
	Listen         Option = "the address of the metrics"
	MaxDepth       Option = "the maximum depth"
	MaxMemory      Option = "the limit of memory"
	MaxOverhead    Option = "the maximum overhead"
	MaxProbes      Option = "the limit of probes"
	MaxRate        Option = "the limit of hits a second"
	MaxStall       Option = "the longest stall"
	NoProbes       Option = "without probes"
	Optimize       Option = "the optimized file"
	Output         Option = "the output"
	Over           Option = "the least time of slow intervals"
	PendingEntries Option = "the limit of pending entries"
	PerCPU         Option = "separate CPUs"
	Process        Option = "the process"
	Rest           Option = "the time between files"
	RingSize       Option = "the ring size"
	SeenEntries    Option = "the number of remembered stacks"
	Slices         Option = "the number of slices"
	Show           Option = "the fields to show"
	Slowest        Option = "the share of slow intervals"
	StackNodes     Option = "the limit of stack nodes"
	Symfs          Option = "the directory of debug files"
	Triggers       Option = "the triggers"
	Until          Option = "the second event"
	Uretprobes     Option = "replacing return addresses"
	UnwindMemory   Option = "the memory for unwind tables"
	Value          Option = "the value"
	Verbose        Option = "all details"
	Wall           Option = "wall-clock time"
)

// flags are the flags set by [NameFlags].
var flags atomic.Pointer[map[Option]string]

// NameFlags sets the flags of options, such as "--ring-size". A command line calls it
// before it runs a command.
func NameFlags(of map[Option]string) { flags.Store(&of) }

// String returns the flag of o, or its description if no command line has called
// [NameFlags].
func (o Option) String() string {
	if named := flags.Load(); named != nil {
		return cmp.Or((*named)[o], string(o))
	}
	return string(o)
}
