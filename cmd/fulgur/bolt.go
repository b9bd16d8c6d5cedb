package main

import (
	"context"
	"errors"
	"time"

	"fulgur/internal/branches"
)

// boltCommand has the flags of ebpf-bolt, and more.
type boltCommand struct {
	branchFlags
	Basic  bool `group:"how" help:"Sample without branches, 3989 times a second if -f is not given, for perf2bolt --basic-events of LLVM 22 and newer. BOLT then knows which code runs, but not where it jumps, so expect less improvement."`
	Strict bool `group:"how" help:"Leave out code between two branches if the kernel ran in between. perf2bolt treats such branches as consecutive."`

	Output   string   `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE; - is standard output, the default."`
	Optimize string   `name:"optimize" placeholder:"FILE" group:"output" help:"Optimize the binary with the installed llvm-bolt, and write it to FILE. The profile is kept only with -o."`
	Check    *seconds `placeholder:"TIME" group:"output" help:"With --optimize and a command, run the command with the original and the optimized program in turn, for at most TIME in all, and compare their CPU time. Default: 2 minutes; 0 skips this."`
	LLVM     string   `name:"llvm" default:"auto" placeholder:"VERSION" group:"output" help:"Write for perf2bolt of this version: 22 (and newer), 16 (16 to 21), or auto (the version of llvm-bolt in PATH, else 22). Default: auto."`
	branchReportFlags
}

// Help returns the text of fulgur bolt --help besides the flags.
func (*boltCommand) Help() string {
	return `Samples the branches that the CPU records (Intel LBR, AMD BRS and LBRv2, Arm BRBE) and
writes BOLT's pre-aggregated profile, for perf2bolt --pa. If the CPU records no branches,
fulgur counts jumps, or single-steps the code. The profile goes to standard output or to
FILE, which appears complete or not at all. The summary on standard error shows how much
was counted and lost and why, whether the profile is sufficient, and the commands to run
next.

Most virtual machines record no branches. With --branches counting (x86-64, Linux 6.6 or
newer), fulgur attaches uprobes to about 50 jumps of the binary at a time, counts their
outcomes for a few milliseconds, and detaches them. It samples the instruction pointer to
find the code that runs, and estimates a consistent profile from both. The binary needs
its symbol table. fulgur leaves out functions that it cannot safely probe, and the summary
names them. While probes are attached or detached, threads may wait briefly in the kernel.
fulgur measures how much time the target loses, and pauses between counting to keep the
loss below --max-overhead. If a thread waits for longer than --max-stall, fulgur counts
fewer jumps at a time. A helper process removes the probes when fulgur exits, even after
SIGKILL.

With --branches breakpoints (on arm64: Linux 6.6 or newer), fulgur counts fewer outcomes,
with hardware breakpoints instead of uprobes: up to three jumps of one thread at a time.
This changes no code, so it cannot harm the target. It takes at most about 1.5 ms from the
thread at a time. fulgur measures the time that a hit takes, 1 to 15 microseconds, and
keeps the total below --max-overhead.

With --branches stepping, a separate process stops one running thread of the target
(ptrace), single-steps it for a few milliseconds, until it has taken 32 branches, and lets
it run again. This slows each thread down by about --max-overhead at most, and writes
nothing into the target. Killing fulgur does not harm the target, but SIGKILL of the
stepping process, which ps shows as "branch-stepper", kills the target if it holds a
thread. A stop affects a thread in a system call like a signal: some calls return EINTR,
which the summary counts, and reads and writes of pipes and sockets may transfer less than
requested. fulgur refuses targets that are already being debugged or traced, targets that
ignore SIGTRAP, 32-bit code, and process 1. Only root can step set-user-ID programs and
processes of other users.

At an overhead of 10 %, stepping records about 300 branches a second of a busy thread. By
perforator's measure, a profile is sufficient if it has one taken branch for each byte of
the file's machine code. This includes code that never runs: a large program that runs
little of its code needs far fewer branches. The summary therefore also estimates which
share of the program's execution the profile has not seen.

Examples:

    # a process, for a minute
    sudo fulgur bolt -p 1234 -o server.preagg 60

    # a service with many workers, wherever they run
    sudo fulgur bolt --binary /usr/sbin/server -o server.preagg 60

    # a process in a virtual machine without branch records, for a minute
    sudo fulgur bolt --branches counting -p 1234 -o server.preagg

    # profile a command, optimize its program, and run both in turn to compare them
    sudo fulgur bolt --optimize server.bolt -- ./server --benchmark

    # a command and its libraries, from its first instruction to its exit
    sudo fulgur bolt --all-binaries -o profiles -- ./benchmark
`
}

func (c *boltCommand) run(ctx context.Context, env environment) (int, error) {
	return measureBranches(ctx, env, c.options)
}

// options translates the flags.
func (c *boltCommand) options() (branches.Options, error) {
	o, err := c.branchFlags.options()
	if err != nil {
		return o, err
	}
	c.add(&o)
	switch {
	case c.Check != nil && c.Optimize == "":
		return o, errors.New("--check is only for --optimize")
	case c.Check != nil:
		o.Check = time.Duration(*c.Check)
	case c.Optimize != "":
		o.Check = branches.DefaultCheck
	}
	o.LLVM, o.Strict, o.Basic, o.Optimize, o.Output = c.LLVM, c.Strict, c.Basic, c.Optimize, c.Output
	return o, nil
}
