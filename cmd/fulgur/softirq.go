package main

import (
	"context"

	"fulgur/internal/capture/softirq"
	"fulgur/internal/session"
)

// softIRQCommand has the flags of the commands that write profiles.
type softIRQCommand struct {
	Duration *seconds `arg:"" optional:"" help:"How long to measure: seconds, or 1m30s. Default: until Ctrl-C or the target exits."`
	Command  []string `kong:"-"` // the arguments after "--"

	targetFlags
	User   bool `short:"U" name:"user-stacks-only" xor:"side" group:"what" help:"Show user stacks only."`
	Kernel bool `short:"K" name:"kernel-stacks-only" xor:"side" group:"what" help:"Show kernel stacks only."`

	Delay seconds `placeholder:"TIME" group:"how" help:"Wait this long before measuring."`
	walkFlags

	outputFlags
	limitFlags
}

// Help returns the text of fulgur softirq --help besides the flags.
func (*softIRQCommand) Help() string {
	return `Measures the time that CPUs spend in soft interrupts, by the stack on which the
handler ran: the stack of the interrupted code, of the system call that raised the
interrupt, or of ksoftirqd. The vector is on top: [NET_RX], [TIMER], [SCHED]. The
summary has a table of the vectors. With -p, -L, --cgroup or a command, it measures
only soft interrupts that ran on the target's threads. pprof files also have the
number of handler runs.

Examples:

    # the whole machine, as a flame graph
    sudo fulgur softirq -o softirq.html 10

    # which code causes network work, on each CPU
    sudo fulgur softirq --per-cpu -o softirq.pb.gz 10
`
}

func (c *softIRQCommand) launch(argv []string) { c.Command = argv }

func (c *softIRQCommand) run(ctx context.Context, env environment) (int, error) {
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
	return session.Measure(ctx, o, softirq.New())
}
