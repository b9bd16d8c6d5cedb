package main

import (
	"context"

	"fulgur/internal/capture/softirq"
)

// softIRQCommand has the flags of the commands that write profiles.
type softIRQCommand struct {
	subjectFlags

	profileFlags
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

func (c *softIRQCommand) run(ctx context.Context, env environment) (int, error) {
	return env.measure(ctx, c.subjectFlags, c.profileFlags, softirq.New())
}
