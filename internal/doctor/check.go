package doctor

import (
	"slices"

	"fulgur/internal/linux/capability"
)

// Command is a way to use fulgur with its own requirements.
type Command string

// The commands that measure.
const (
	Profile Command = "profile"
	// ProfilePerf samples the user code of the user's own processes by perf events alone.
	ProfilePerf Command = "profile --via perf"
	// ProfilePtrace samples them by stopping their threads.
	ProfilePtrace Command = "profile --via ptrace"
	// OffCPUPerf and RecordPerf measure the waits of the user's own processes by perf events alone.
	OffCPUPerf      Command = "offcpu --via perf"
	RecordPerf      Command = "record --via perf"
	OffCPU          Command = "offcpu"
	BlockIO         Command = "blockio"
	Faults          Command = "faults"
	SoftIRQ         Command = "softirq"
	RunQ            Command = "runq"
	Count           Command = "count"
	Latency         Command = "latency"
	Slow            Command = "slow"
	Locks           Command = "locks"
	Alloc           Command = "alloc"
	Record          Command = "record"
	Bolt            Command = "bolt"
	BoltCounting    Command = "bolt --branches counting"
	BoltBreakpoints Command = "bolt --branches breakpoints"
	BoltStepping    Command = "bolt --branches stepping"
	// AutoFDO records branches as Bolt does.
	AutoFDO Command = "autofdo"
)

// command is what the doctor knows of a command.
type command struct {
	name Command
	// programs are the sources whose programs it loads, by their commands.
	programs []Command
	// memory is the memory in MiB that it needs at least, see [MemoryNeed]; 0 if that is not known.
	memory uint64
	// stacks means that it shows stacks.
	stacks bool
}

// commands holds all commands in the order of the report. The memory was measured with Linux 6.18 on 2 CPUs, each
// command for one second on an idle machine: the lowest limit under which the kernel killed nothing, to 2 MiB,
// and then about an eighth more, to multiples of 8 MiB. More programs, CPUs and stacks need more. TestMemoryNeeds
// in test/e2e runs the commands with these limits, or says why not. Branch records were
// not measured: few machines have them.
var commands = []command{
	{Profile, []Command{Profile}, 64, true}, // 55
	{ProfilePerf, nil, 0, false},
	{ProfilePtrace, nil, 0, false},
	{OffCPUPerf, nil, 0, false},
	{RecordPerf, nil, 0, false},
	{OffCPU, []Command{OffCPU}, 72, true},                            // 65
	{BlockIO, []Command{BlockIO}, 72, true},                          // 65
	{Faults, []Command{Faults}, 64, true},                            // 58
	{SoftIRQ, []Command{SoftIRQ}, 64, true},                          // 55
	{RunQ, []Command{OffCPU}, 72, true},                              // 65
	{Count, []Command{Count}, 64, true},                              // 57
	{Latency, []Command{Latency}, 72, true},                          // 60
	{Slow, []Command{Slow}, 96, true},                                // not measured: Latency and 12 for the parts of intervals
	{Locks, []Command{Latency}, 112, true},                           // 98
	{Alloc, []Command{Alloc}, 88, true},                              // 79
	{Record, []Command{Profile, OffCPU, BlockIO, Faults}, 112, true}, // 98
	{Bolt, []Command{Bolt}, 0, false},
	{BoltCounting, nil, 40, false}, // 33
	{BoltBreakpoints, nil, 0, false},
	{BoltStepping, nil, 24, false}, // 10
	{AutoFDO, []Command{Bolt}, 0, false},
}

// Commands lists all commands in the order of the report.
var Commands = commandsThat(func(command) bool { return true })

// withBPF lists the commands that load BPF programs, or trace processes of other users.
var withBPF = commandsThat(func(c command) bool { return !slices.Contains(withPerf, c.name) && c.name != ProfilePtrace })

// withPerf lists the commands that measure by perf events alone.
var withPerf = []Command{ProfilePerf, OffCPUPerf, RecordPerf}

// withStacks lists the commands that show stacks by BPF programs.
var withStacks = commandsThat(func(c command) bool { return c.stacks })

// commandsThat returns the names of the commands for which is returns true.
func commandsThat(is func(command) bool) []Command {
	var names []Command
	for _, c := range commands {
		if is(c) {
			names = append(names, c.name)
		}
	}
	return names
}

// check examines one property of the machine.
type check struct {
	id    string // stable, for programs that read the report
	group string
	title string
	// value describes the property in a word or two.
	value func(*Facts) string
	// faults are the possible problems, the worst first. Only the first that
	// occurs is reported.
	faults []fault
}

// fault is a possible problem of a check.
type fault struct {
	when func(*Facts) bool
	// what describes the problem. A colon and a remedy can follow.
	what func(*Facts) string
	// stops lists the commands that cannot work. costs lists the commands that
	// work with a loss, which lost describes. A fault with neither is only a
	// note.
	stops, costs []Command
	lost         string
	// stopped replaces stops if these commands depend on the machine. whatFor then describes the problem of
	// one of them.
	stopped func(*Facts) []Command
	whatFor func(*Facts, Command) string
	// plain is set if the check's value already shows the problem.
	plain bool
	// minor suppresses the warning before every run.
	minor bool
	// missing is the missing capability, if that is the problem.
	missing capability.Capability
	// denies are the capabilities that this fault makes ineffective. The fault
	// then explains why the kernel refuses an operation to a process that has
	// them.
	denies capability.Set
	// causes returns the problems that cause this one. Their remedies apply to
	// it, too. nil means no causes.
	causes func(*Facts) []Problem
	remedy func(*Facts) Remedy
}

// Remedy tells the user how to solve a problem.
type Remedy struct {
	// Do describes it in words.
	Do string `json:"do,omitempty"`
	// Paste is a shell command, if one solves the problem.
	Paste string `json:"paste,omitempty"`
}

// String returns Do and Paste, separated by a colon.
func (r Remedy) String() string {
	switch {
	case r.Do == "":
		return r.Paste
	case r.Paste == "":
		return r.Do
	}
	return r.Do + ": " + r.Paste
}

// Problem is a problem found by a check.
type Problem struct {
	// Check is the ID of the check.
	Check string `json:"-"`
	// What describes the problem.
	What string `json:"what"`
	// FollowsFrom holds the IDs of the checks whose problems are the cause. If
	// it is not empty, their remedies apply, and Remedy is empty.
	FollowsFrom []string `json:"follows_from,omitempty"`
	// Stops lists the commands that cannot work. Costs lists the commands that
	// work with the loss that Lost describes.
	Stops []Command `json:"stops,omitempty"`
	Costs []Command `json:"costs,omitempty"`
	Lost  string    `json:"lost,omitempty"`
	// Remedy is empty if nothing can be done.
	Remedy Remedy `json:"remedy,omitzero"`

	whatFor func(Command) string // nil if What is the same for all commands
	plain   bool
	minor   bool
	missing capability.Capability
	denies  capability.Set
}

// String returns the problem and its remedy.
func (p *Problem) String() string {
	if remedy := p.Remedy.String(); remedy != "" {
		return p.What + ": " + remedy
	}
	return p.What
}

// judge returns the problem that c finds, nil if none.
func (c *check) judge(f *Facts) *Problem {
	for _, fault := range c.faults {
		if !fault.when(f) {
			continue
		}
		p := &Problem{
			Check: c.id, What: fault.what(f), Stops: fault.stops, Costs: fault.costs, Lost: fault.lost,
			plain: fault.plain, minor: fault.minor, denies: fault.denies,
		}
		if fault.stopped != nil {
			p.Stops = fault.stopped(f)
			p.whatFor = func(c Command) string { return fault.whatFor(f, c) }
		}
		if fault.missing != 0 {
			p.missing = f.Known(fault.missing)
		}
		if fault.causes != nil {
			for _, cause := range fault.causes(f) {
				p.FollowsFrom = append(p.FollowsFrom, cause.Check)
			}
		}
		if fault.remedy != nil && p.FollowsFrom == nil {
			p.Remedy = fault.remedy(f)
		}
		return p
	}
	return nil
}

// IDs of checks for [Facts.Judge].
const (
	CheckProc   = "proc"
	CheckCgroup = "cgroup"

	checkBTF     = "btf"
	checkSeccomp = "seccomp"
)

// Judge returns the problem that the check with the given ID finds, nil if none.
func (f *Facts) Judge(id string) *Problem {
	for i := range grounds {
		if grounds[i].id == id {
			return grounds[i].judge(f)
		}
	}
	return nil
}

// problems returns the problems that checks find, in order.
func problems(checks []check, f *Facts) []Problem {
	var found []Problem
	for i := range checks {
		if p := checks[i].judge(f); p != nil {
			found = append(found, *p)
		}
	}
	return found
}

// origins returns the IDs of the checks whose remedies solve p.
func (p *Problem) origins() []string {
	if p.FollowsFrom != nil {
		return p.FollowsFrom
	}
	return []string{p.Check}
}

// harmless reports whether p has no consequences.
func (p *Problem) harmless() bool { return len(p.Stops)+len(p.Costs) == 0 && p.denies == 0 }

// hits reports whether p stops c or costs it something.
func (p *Problem) hits(c Command) (stops, costs bool) {
	return slices.Contains(p.Stops, c), slices.Contains(p.Costs, c)
}

// always returns a function that ignores the facts and returns v.
func always[T any](v T) func(*Facts) T { return func(*Facts) T { return v } }

// do and paste return remedies that are the same on every machine.
func do(words string) func(*Facts) Remedy { return always(Remedy{Do: words}) }
func paste(line string) func(*Facts) Remedy {
	return always(Remedy{Paste: line})
}
