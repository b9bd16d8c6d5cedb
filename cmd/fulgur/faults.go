package main

import (
	"context"

	"fulgur/internal/capture/faults"
	"fulgur/internal/session"
)

// faultsCommand has the flags of the commands that write profiles.
type faultsCommand struct {
	Duration *seconds `arg:"" optional:"" help:"How long to measure: seconds, or 1m30s. Default: until Ctrl-C or the target exits."`
	Command  []string `kong:"-"` // the arguments after "--"

	targetFlags
	CPU    cpus `short:"C" name:"cpu" placeholder:"CPU,..." group:"what" help:"Measure only on these CPUs, for example 0,2-3."`
	User   bool `short:"U" name:"user-stacks-only" xor:"side" group:"what" help:"Show user stacks only."`
	Kernel bool `short:"K" name:"kernel-stacks-only" xor:"side" group:"what" help:"Show kernel stacks only."`

	Count *count  `short:"c" placeholder:"N" group:"how" help:"Count every Nth fault, with weight N. Default: 1."`
	Delay seconds `placeholder:"TIME" group:"how" help:"Wait this long before measuring."`
	walkFlags

	Offsets bool `group:"output" help:"Show the offset of each page in its file: [/usr/lib/libc.so.6+0x1000]."`
	outputFlags
	limitFlags
}

// Help returns the text of fulgur faults --help besides the flags.
func (*faultsCommand) Help() string {
	return `Counts page faults by the stack that touched the page, with the mapped file on top,
such as [/usr/lib/libc.so.6], or [anonymous memory]. At the end it lists the files with
the most faults. pprof files have minor and major faults, and the time to handle them
if the kernel supports tracing it.

Examples:

    # which code makes the memory of a process grow, as a flame graph
    sudo fulgur faults -p 1234 -o faults.html 10

    # which files a command reads through its mappings
    sudo fulgur faults -- tar -xf archive.tar

    # which parts of the files
    sudo fulgur faults --offsets -o faults.folded -- tar -xf archive.tar
`
}

func (c *faultsCommand) launch(argv []string) { c.Command = argv }

func (c *faultsCommand) run(ctx context.Context, env environment) (int, error) {
	o, err := c.options()
	if err != nil {
		return exitUsage, usageError{err}
	}
	env.complete(&o.Options)
	return session.Measure(ctx, o.Options, faults.New(o.Config))
}

// faultsOptions are the options that the flags select.
type faultsOptions struct {
	session.Options
	faults.Config
}

// options translates the flags.
func (c *faultsCommand) options() (faultsOptions, error) {
	common, err := recording{
		duration: c.Duration,
		delay:    c.Delay,
		command:  c.Command,
		user:     c.User,
		kernel:   c.Kernel,
		walk:     c.walkFlags,
		target:   c.targetFlags,
		cpus:     c.CPU,
		output:   c.outputFlags,
		limits:   c.limitFlags,
	}.options()
	return faultsOptions{common, faults.Config{Period: uint64(orZero(c.Count)), Offsets: c.Offsets}}, err
}
