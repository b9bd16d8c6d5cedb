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
	Duration *seconds `arg:"" optional:"" help:"How long to sample: seconds, or 1m30s. Default: 10 seconds; with --branches stepping, until the profile is sufficient, at most 5 minutes; with a command, until it exits."`
	Command  []string `kong:"-"` // the arguments after "--"

	PID         ids    `short:"p" name:"pid" placeholder:"PID,..." xor:"target" group:"what" help:"Sample these processes, including threads that start later."`
	Cgroup      string `placeholder:"PATH" xor:"target" group:"what" help:"Sample this cgroup (v2) and its descendants, including tasks that join later."`
	Children    bool   `group:"what" help:"With -p, include existing and future descendants. A command's descendants are always included."`
	Binary      string `placeholder:"FILE" xor:"binary" group:"what" help:"Profile this executable or shared object, in every process that maps it. Default: the program of the -p processes or the command."`
	AllBinaries bool   `xor:"binary" group:"what" help:"Profile every mapped file. -o is a directory; files in it are named by binary and build ID."`

	Branches    string     `enum:"auto,hardware,stepping" default:"auto" placeholder:"HOW" group:"how" help:"How to record branches: hardware uses the CPU's branch records; stepping single-steps the target's threads, see above; auto, the default, uses hardware, or stepping if there is none and a command is the target."`
	Event       string     `short:"e" placeholder:"EVENT" group:"how" help:"Sample this event, for example cycles or pmu/terms/. Default: the best event of this CPU for branches."`
	Frequency   *frequency `short:"f" placeholder:"HZ" group:"how" help:"Samples per second on each CPU, or max, the default. With --basic, the default is 3989."`
	MaxOverhead *percent   `placeholder:"PERCENT" group:"how" help:"Maximum slowdown of each thread by stepping. Default: 10; with a command, 50."`
	Burst       *hold      `placeholder:"TIME" group:"how" help:"Maximum time that stepping holds a thread. Default: 20ms."`
	Basic       bool       `group:"how" help:"Sample without branches, for perf2bolt --basic-events of LLVM 22 and newer. BOLT then knows which code runs, but not where it jumps, so expect less improvement."`
	Strict      bool       `group:"how" help:"Leave out code between two branches if the kernel ran in between. perf2bolt treats such branches as consecutive."`

	Output   string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE; - is standard output, the default."`
	Optimize string `name:"optimize" placeholder:"FILE" group:"output" help:"Optimize the binary with the installed llvm-bolt, and write it to FILE. The profile is kept only with -o."`
	LLVM     string `name:"llvm" default:"auto" placeholder:"VERSION" group:"output" help:"Write for perf2bolt of this version: 22 (and newer), 16 (16 to 21), or auto (the version of llvm-bolt in PATH, else 22). Default: auto."`
	Stats    string `enum:"text,json" default:"text" placeholder:"FORM" group:"output" help:"Format of the summary on standard error: text, the default, or json."`
	Verbose  bool   `short:"v" group:"output" help:"Print how branches are recorded, and how often."`
	Quiet    bool   `short:"q" group:"output" help:"Do not print progress, warnings and the summary to standard error."`
	logFlag

	RingSize *size `placeholder:"BYTES" group:"limit" help:"Size of each CPU's ring buffer, for example 1M; rounded up to a power of 2."`

	Version kong.VersionFlag `short:"V" help:"Print the version."`
}

// Help returns the text of fulgur bolt --help besides the flags.
func (*boltCommand) Help() string {
	return `Samples the branches that the CPU records (Intel LBR, AMD BRS and LBRv2, Arm BRBE), or
single-steps the code if the CPU records none, and writes BOLT's pre-aggregated
profile, for perf2bolt --pa. The profile goes to standard output or FILE, which appears
complete or not at all. The summary on standard error shows what was counted and lost
and why, whether the profile is sufficient, and the commands to run next.

Most virtual machines record no branches. With --branches stepping, a separate process
stops one running thread of the target (ptrace), single-steps it for a few
milliseconds, until it has taken 32 branches, and lets it run again. This slows each
thread down by about --max-overhead at most, and writes nothing into the target.
Killing fulgur does not harm the target; but SIGKILL of the stepping process, which ps
shows as "branch-stepper", kills the target if it holds a thread. To a thread in a
system call, a stop is like a signal: some calls return EINTR, which the summary
counts, and reads and writes of pipes and sockets may transfer less than requested.
fulgur refuses targets that are being debugged or traced already, targets that ignore
SIGTRAP, 32-bit code, and process 1. Only root can step set-user-ID programs and
processes of other users.

At 10 %, stepping records about 300 branches a second of a busy thread. By perforator's
measure, a profile is sufficient if it has one taken branch for each byte of the file's
machine code. This includes code that never runs: a large program that runs little of
its code needs far fewer branches. The summary therefore also estimates how much of the
program's execution the profile has not seen yet.

Examples:

    # a process, for a minute
    sudo fulgur bolt -p 1234 -o server.preagg 60

    # a service with many workers, wherever they run
    sudo fulgur bolt --binary /usr/sbin/server -o server.preagg 60

    # a process in a virtual machine, until the profile is sufficient
    sudo fulgur bolt --branches stepping -p 1234 -o server.preagg

    # profile a command, and optimize its program
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
		Target:  measured,
		Command: c.Command,
		ProfileOptions: boltprofile.ProfileOptions{
			Binary: c.Binary, AllBinaries: c.AllBinaries, LLVM: c.LLVM, Strict: c.Strict, Basic: c.Basic, StatsJSON: c.Stats == "json",
		},
		Branches:    c.Branches,
		Event:       c.Event,
		Frequency:   uint64(orZero(c.Frequency)),
		MaxOverhead: float64(orZero(c.MaxOverhead)),
		BurstMax:    time.Duration(orZero(c.Burst)),
		Duration:    time.Duration(orZero(c.Duration)),
		RingSize:    uint32(orZero(c.RingSize)),
		Output:      c.Output,
		Optimize:    c.Optimize,
		Verbose:     c.Verbose,
		Quiet:       c.Quiet,
	}, nil
}

// target returns the target that the flags select. kong has checked that there is
// only one.
func (c *boltCommand) target() (target.Target, error) {
	return chooseTarget(target.Target{PIDs: c.PID, CgroupPath: c.Cgroup, Children: c.Children}, c.Command)
}
