package main

import (
	"context"
	"errors"
	"time"

	"github.com/alecthomas/kong"

	"fulgur/internal/capture/target"
	"fulgur/internal/session/boltprofile"
)

// boltCommand has the flags of ebpf-bolt, and more.
type boltCommand struct {
	Duration *seconds `arg:"" optional:"" help:"How long to sample: seconds, or as 1m30s. Default: 10 seconds; with --branches stepping until the profile is sufficient, but for 5 minutes at most; with a command, until it exits."`
	Command  []string `kong:"-"` // what follows "--"

	PID         ids    `short:"p" name:"pid" placeholder:"PID,..." xor:"target" group:"what" help:"Sample these processes: all their threads, also those that start later."`
	Cgroup      string `placeholder:"PATH" xor:"target" group:"what" help:"Sample the tasks of this cgroup (v2) and of those below it, also those that join later."`
	Children    bool   `group:"what" help:"With -p, sample their child processes too, at any depth: those that exist and those that start later. A command's are always sampled."`
	Binary      string `placeholder:"FILE" xor:"binary" group:"what" help:"Take the profile of this executable or shared object, in whatever process maps it. Default: the program that the processes of -p, or the command, run."`
	AllBinaries bool   `xor:"binary" group:"what" help:"Take a profile of every file that the processes map, named by file and build ID, in the directory that -o names."`

	Branches    string     `enum:"auto,hardware,stepping" default:"auto" placeholder:"HOW" group:"how" help:"What records the branches: hardware, the processor; stepping, which needs none and has the target's threads execute one instruction after the other for some milliseconds at a time, see above; auto, the default, is hardware, and for a command stepping where there is none."`
	Event       string     `short:"e" placeholder:"EVENT" group:"how" help:"Sample this event, as cycles or pmu/terms/. Default: the best that this CPU has for branches."`
	Frequency   *frequency `short:"f" placeholder:"HZ" group:"how" help:"Samples a second on each CPU, or max, the default. With --basic the default is 3989."`
	MaxOverhead *percent   `placeholder:"PERCENT" group:"how" help:"How much longer stepping lets each thread take for its work. Default: 10; with a command, 50."`
	Burst       *hold      `placeholder:"TIME" group:"how" help:"How long stepping holds a thread at a time, at most. Default: 20ms."`
	Basic       bool       `group:"how" help:"Take samples without branches, for perf2bolt --basic-events of LLVM 22 and newer. They tell BOLT which code runs, but not where it jumps: expect less of them than of branches."`
	Strict      bool       `group:"how" help:"Leave out code that ran between two branches with an entry of the kernel in between. perf2bolt does not: it takes the two for neighbours."`

	Output   string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE; - is standard output, the default."`
	Optimize string `name:"optimize" placeholder:"FILE" group:"output" help:"Have the installed llvm-bolt optimise the binary by the profile, into FILE. The profile is then kept only if -o names a file for it."`
	LLVM     string `name:"llvm" default:"auto" placeholder:"VERSION" group:"output" help:"Write for this version's perf2bolt: 22 and newer, 16 to 21 (give 16), or auto for that of the llvm-bolt in PATH, else 22. Default: auto."`
	Stats    string `enum:"text,json" default:"text" placeholder:"FORM" group:"output" help:"Write the summary on standard error as text, the default, or json."`
	Verbose  bool   `short:"v" group:"output" help:"Say what records the branches, and how often."`
	Quiet    bool   `short:"q" group:"output" help:"No progress, no warnings and no summary on standard error."`

	RingSize *size `placeholder:"BYTES" group:"limit" help:"Size of the ring that each CPU's samples come through, as 1M; rounded up to a power of 2."`

	Version kong.VersionFlag `short:"V" help:"Print the version."`
}

// Help is what fulgur bolt --help says beside the flags.
func (*boltCommand) Help() string {
	return `Samples the branches that the CPU recorded (Intel LBR, AMD BRS and LBRv2, Arm
BRBE), or steps through the code where it records none, and writes BOLT's
pre-aggregated profile, for perf2bolt --pa. The profile goes to standard output or
FILE, which appears complete or not at all; the summary on standard error says what
was counted, what was lost and why, whether it is enough, and what to run next.

Most virtual machines record no branches. With --branches stepping a process of
fulgur's own stops one running thread of the target (ptrace), has it execute
instruction by instruction for a few milliseconds, until it has taken 32 branches,
and lets it run free again. Bursts are so rare that a thread takes about
--max-overhead longer for its work at most, and nothing is written into the target.
That fulgur is killed does not harm the target; but SIGKILL of that process, which
ps shows as "branch-stepper", while it holds a thread kills the target. To a thread
in a system call being stopped is like a signal: some return EINTR, which the
summary counts, and reads and writes of pipes and sockets may do less than they were
asked to. A target that is being debugged or traced already, one that ignores
SIGTRAP, and 32-bit code are refused, and so is process 1. Only root can step
set-user-ID programs and processes of other users.

Stepping takes some 300 branches a second of a busy thread at 10 %. A profile counts
as sufficient with 1 branch taken for each byte of the file's machine code, which is
perforator's measure. All of the code counts, whether it runs or not: a large program
of which a small part runs is well known long before. The summary therefore also
estimates how much of what the program does next is not in the profile yet.

Examples:

    # a process, for a minute
    sudo fulgur bolt -p 1234 -o server.preagg 60

    # a service with many workers, wherever they run
    sudo fulgur bolt --binary /usr/sbin/server -o server.preagg 60

    # a process in a virtual machine, until the profile is sufficient
    sudo fulgur bolt --branches stepping -p 1234 -o server.preagg

    # all the way: take the profile of a command, and optimise its program
    sudo fulgur bolt --optimize server.bolt -- ./server --benchmark

    # a command and its libraries, from its first instruction to its exit
    sudo fulgur bolt --all-binaries -o profiles -- ./benchmark
`
}

func (c *boltCommand) launch(argv []string) { c.Command = argv }

func (c *boltCommand) run(ctx context.Context, env environment) (int, error) {
	o, err := c.options()
	if err != nil {
		return exitUsage, usageError{err}
	}
	o.Stdout, o.Stderr = env.stdout, env.stderr
	o.Progress = !o.Quiet && isScreen(env.stderr)
	return boltprofile.Measure(ctx, o)
}

// options translates the flags.
func (c *boltCommand) options() (boltprofile.Options, error) {
	measured, err := c.target()
	if err != nil {
		return boltprofile.Options{}, err
	}
	if c.Duration != nil && *c.Duration == 0 {
		return boltprofile.Options{}, errors.New("a duration of 0 measures nothing")
	}
	return boltprofile.Options{
		Target:      measured,
		Command:     c.Command,
		Binary:      c.Binary,
		AllBinaries: c.AllBinaries,
		Branches:    c.Branches,
		Event:       c.Event,
		Frequency:   uint64(orZero(c.Frequency)),
		MaxOverhead: float64(orZero(c.MaxOverhead)),
		BurstMax:    time.Duration(orZero(c.Burst)),
		Basic:       c.Basic,
		Duration:    time.Duration(orZero(c.Duration)),
		LLVM:        c.LLVM,
		Strict:      c.Strict,
		RingSize:    uint32(orZero(c.RingSize)),
		Output:      c.Output,
		Optimize:    c.Optimize,
		StatsJSON:   c.Stats == "json",
		Verbose:     c.Verbose,
		Quiet:       c.Quiet,
	}, nil
}

// target is what the flags choose; kong has seen to it that they choose once.
func (c *boltCommand) target() (target.Target, error) {
	return chooseTarget(target.Target{PIDs: c.PID, CgroupPath: c.Cgroup, Children: c.Children}, c.Command)
}
