package main

import (
	"context"

	"fulgur/internal/capture/offcpu"
	"fulgur/internal/session"
)

// runQCommand has the flags of the commands that write profiles.
type runQCommand struct {
	Duration *seconds `arg:"" optional:"" help:"How long to measure: seconds, or 1m30s. Default: until Ctrl-C or the target exits."`
	Command  []string `kong:"-"` // the arguments after "--"

	targetFlags
	User   bool `short:"U" name:"user-stacks-only" xor:"side" group:"what" help:"Show user stacks only, and the wait reason."`
	Kernel bool `short:"K" name:"kernel-stacks-only" xor:"side" group:"what" help:"Show kernel stacks only."`

	WakerStacks bool    `group:"how" help:"Show the stack that woke each thread, upside down, on top of the stack of the wait."`
	Delay       seconds `placeholder:"TIME" group:"how" help:"Wait this long before measuring."`
	walkFlags

	outputFlags
	limitFlags
	PendingEntries *count `placeholder:"N" group:"limit" help:"Maximum number of waiting threads to track."`
}

// Help returns the text of fulgur runq --help besides the flags.
func (*runQCommand) Help() string {
	return `Measures run-queue latency: the time from when a thread is woken, or preempted, until
it runs, by the stack in which it left the CPU, with the reason on top: [preempted],
[futex], [disk read]. It is the runnable part of the time that fulgur offcpu measures.
pprof files also have the number of waits.

Examples:

    # which threads wait for a CPU, as a flame graph
    sudo fulgur runq -o runq.html 10

    # one process, with separate threads
    sudo fulgur runq -p 1234 --per-thread 10
`
}

func (c *runQCommand) launch(argv []string) { c.Command = argv }

func (c *runQCommand) run(ctx context.Context, env environment) (int, error) {
	o, err := recording{
		duration: c.Duration,
		delay:    c.Delay,
		command:  c.Command,
		user:     c.User,
		kernel:   c.Kernel,
		walk:     c.walkFlags,
		target:   c.targetFlags,
		output:   c.outputFlags,
		limits:   c.limitFlags,
	}.options()
	if err != nil {
		return exitUsage, usageError{err}
	}
	env.complete(&o)
	return session.Measure(ctx, o, offcpu.New(offcpu.Config{
		RunQueue: true, WakerStacks: c.WakerStacks, PendingEntries: uint32(orZero(c.PendingEntries)),
	}))
}
