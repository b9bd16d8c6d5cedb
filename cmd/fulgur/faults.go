package main

import (
	"context"

	"fulgur/internal/capture/faults"
)

// faultsCommand has the flags of the commands that write profiles.
type faultsCommand struct {
	subjectFlags
	CPU cpus `short:"C" name:"cpu" placeholder:"CPU,..." group:"what" help:"Measure only on these CPUs, for example 0,2-3."`

	Count *count `short:"c" placeholder:"N" group:"how" help:"Count every Nth fault, with weight N. Default: 1."`

	profileFlags
	Offsets bool `group:"output" help:"Show the offset of each page in its file: [/usr/lib/libc.so.6+0x1000]."`
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

func (c *faultsCommand) run(ctx context.Context, env environment) (int, error) {
	return env.measure(ctx, c.subjectFlags, c.profileFlags, faults.New(c.config()), c.CPU...)
}

// config translates the command's own flags.
func (c *faultsCommand) config() faults.Config {
	return faults.Config{Period: uint64(orZero(c.Count)), Offsets: c.Offsets}
}
