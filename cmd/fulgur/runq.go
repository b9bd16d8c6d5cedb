package main

import (
	"context"

	"fulgur/internal/capture/offcpu"
)

// runQCommand has the flags of the commands that write profiles.
type runQCommand struct {
	subjectFlags

	WakerStacks bool `group:"how" help:"Show the stack that woke each thread, upside down, on top of the stack of the wait."`

	profileFlags
	PendingEntries *count `placeholder:"N" group:"limit" help:"Maximum number of waiting threads to track."`
}

// Help returns the text of fulgur runq --help besides the flags.
func (*runQCommand) Help() string {
	return `Measures run-queue latency: the time from when a thread is woken, or preempted, until
it runs, by its stack when it left the CPU, with the reason on top: [preempted],
[futex], [disk read]. It is the runnable part of the time that fulgur offcpu measures.
pprof files also have the number of waits. The summary has percentiles and a
histogram of the waits.

Examples:

    # which threads wait for a CPU, as a flame graph
    sudo fulgur runq -o runq.html 10

    # one process, with separate threads
    sudo fulgur runq -p 1234 --per-thread 10
`
}

func (c *runQCommand) run(ctx context.Context, env environment) (int, error) {
	return env.measure(ctx, c.subjectFlags, c.profileFlags, offcpu.New(offcpu.Config{
		RunQueue: true, WakerStacks: c.WakerStacks, PendingEntries: uint32(orZero(c.PendingEntries)),
	}))
}
