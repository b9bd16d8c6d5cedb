package main

import (
	"context"

	"fulgur/internal/capture/hits"
)

// countCommand has the flags of the commands that write profiles.
type countCommand struct {
	Events []string `short:"e" name:"event" required:"" sep:"none" placeholder:"EVENT" complete:"event" group:"what" help:"Count this event: tracepoint:GROUP:NAME, kprobe:FUNCTION, kretprobe:FUNCTION, uprobe:PATH:FUNCTION[+OFFSET], uretprobe:PATH:FUNCTION or usdt:PATH:PROVIDER:NAME. Names can have the wildcards * and ?. Can be given several times."`
	subjectFlags
	Filter string `placeholder:"CONDITION" group:"what" help:"Count only hits for which this condition holds, for example 'ret < 0 && fd != 2'. Fields: the tracepoint's fields, arg0 to arg19 of functions, and retval. Operators: ==, !=, <, <=, >, >=, &&, ||, ! and parentheses."`

	Weight  string `placeholder:"FIELD" group:"how" help:"Sum this field instead of counting hits: argN, retval or field:NAME. Negative values count as 0."`
	Every   *count `placeholder:"N" group:"how" help:"Count one of N hits of each event on each CPU, with a weight of N. Default: 1."`
	MaxRate *count `placeholder:"N" group:"how" help:"Count at most N hits per second on each CPU, to protect the target. Default: 100000."`
	placeFlags

	profileFlags
}

// Help returns the text of fulgur count --help besides the flags.
func (*countCommand) Help() string {
	return `Counts hits by stack: how often code reaches a tracepoint, a function of the kernel or
of a program, or a USDT probe. With several events, or a pattern that matches several,
the event is on top of the stack, and the summary and pprof files have the hits of each
event. A uretprobe counts returns, with breakpoints on the function's return instructions.
docs/events.md has the details.

Examples:

    # the stacks that start programs
    sudo fulgur count -e sched:sched_process_exec 10

    # bytes allocated in a process, as a flame graph
    sudo fulgur count -e uprobe:/usr/lib/x86_64-linux-gnu/libc.so.6:malloc --weight arg0 -p 1234 -o malloc.html 10

    # bytes written, except to standard error
    sudo fulgur count -e syscalls:sys_enter_write --weight field:count --filter 'fd != 2' -- make

    # system calls of a command, by call
    sudo fulgur count -e 'syscalls:sys_enter_*' -- make

    # calls of all functions of ext4
    sudo fulgur count -e 'kprobe:ext4_*' 5
`
}

func (c *countCommand) run(ctx context.Context, env environment) (int, error) {
	return env.measure(ctx, c.subjectFlags, c.profileFlags, hits.New(hits.Config{
		Events:  c.Events,
		Filter:  c.Filter,
		Weight:  c.Weight,
		Every:   uint64(orZero(c.Every)),
		MaxRate: uint64(orZero(c.MaxRate)),
		Places:  c.places(),
	}))
}
