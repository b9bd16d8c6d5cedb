package main

import (
	"context"

	"fulgur/internal/capture/latency"
)

// latencyCommand has the flags of the commands that write profiles.
type latencyCommand struct {
	Events []string `short:"e" name:"event" required:"" sep:"none" placeholder:"EVENT" complete:"event" group:"what" help:"Measure the time from this event: kprobe:FUNCTION, uprobe:PATH:FUNCTION, tracepoint:GROUP:NAME or usdt:PATH:PROVIDER:NAME. --until gives the end. Names can have the wildcards * and ?. Can be given several times."`
	Until  string   `placeholder:"EVENT" complete:"event" group:"what" help:"Measure the time until this event, written as for -e. Default: the return of the function, or the event's counterpart, such as sys_exit_read for sys_enter_read."`
	Key    string   `placeholder:"FIELD" group:"what" help:"Match two events by this field, such as arg0, or FIELD=FIELD if it has another name in the second event. Default: tid, the same thread."`
	subjectFlags
	Filter string `placeholder:"CONDITION" group:"what" help:"Measure only if this condition holds for the first event, for example 'count > 4096'. See fulgur count."`

	MaxRate *count `placeholder:"N" group:"how" help:"Measure at most N times per second on each CPU, to protect the target. Default: 100000."`

	profileFlags
	placeFlags
	PendingEntries *count `placeholder:"N" group:"limit" help:"Maximum number of calls or intervals in progress to track. Beyond it, the oldest give way. Default: 16384."`
}

// Help returns the text of fulgur latency --help besides the flags.
func (*latencyCommand) Help() string {
	return `Measures how long function calls take, or the time between two events, by the stack at
the first event. Each recursive call counts. The output has the total time of each
stack, and the summary has percentiles and a histogram of the times. docs/events.md has the details, and
explains how Go functions differ.

Examples:

    # how long a function of the kernel takes
    sudo fulgur latency -e kprobe:vfs_fsync 10

    # a function of a library, in one process, as a flame graph
    sudo fulgur latency -e uprobe:/usr/lib/x86_64-linux-gnu/libssl.so.3:SSL_read -p 1234 -o read.html 10

    # a function of a Go program
    sudo fulgur latency -e 'uprobe:/usr/bin/server:main.(*Server).handle' -p 1234 10

    # a system call, by the thread that makes it
    sudo fulgur latency -e syscalls:sys_enter_fsync -- make

    # each system call of a command
    sudo fulgur latency -e 'syscalls:sys_enter_*' -- make

    # from the wake-up of a thread until it runs
    sudo fulgur latency -e sched:sched_wakeup --until sched:sched_switch --key pid=next_pid 10
`
}

func (c *latencyCommand) run(ctx context.Context, env environment) (int, error) {
	return env.measure(ctx, c.subjectFlags, c.profileFlags, latency.New(latency.Config{
		Events:         c.Events,
		Until:          c.Until,
		Key:            c.Key,
		Filter:         c.Filter,
		MaxRate:        uint64(orZero(c.MaxRate)),
		Places:         c.places(),
		PendingEntries: uint32(orZero(c.PendingEntries)),
	}))
}
