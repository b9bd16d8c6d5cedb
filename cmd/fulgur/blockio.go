package main

import (
	"context"

	"fulgur/internal/session"
)

// blockIOCommand has the flags of the commands that take profiles, and -Q of
// bcc's biolatency.
type blockIOCommand struct {
	Duration *seconds `arg:"" optional:"" help:"How long to measure: seconds, or as 1m30s. Without it until Ctrl-C or the target's exit."`
	Command  []string `kong:"-"` // what follows "--"

	targetFlags
	User   bool `short:"U" name:"user-stacks-only" xor:"side" group:"what" help:"Show user stacks only."`
	Kernel bool `short:"K" name:"kernel-stacks-only" xor:"side" group:"what" help:"Show kernel stacks only."`

	Delay seconds `placeholder:"TIME" group:"how" help:"Wait before measuring."`
	walkFlags

	Weight string `placeholder:"VALUE" group:"output" help:"Show stacks by requests, bytes, queued (the time before the device gets a request), in-device, or latency, the sum of the two and default. pprof files have all."`
	Queued bool   `short:"Q" name:"queued" group:"output" help:"Include the time before the device gets a request in the histograms."`
	outputFlags
	limitFlags
	PendingEntries *count `placeholder:"N" group:"limit" help:"How many requests that are under way are remembered."`
}

// Help is what fulgur blockio --help says beside the flags.
func (*blockIOCommand) Help() string {
	return `Measures requests to disks by the stack that made them, with the file, where it is
known, and the disk and the operation on top, as [/var/log/syslog];[sda write sync].
At its end it shows the files with most, and draws for each disk and operation how
long the requests took. What the kernel writes back some time after a program wrote it
is marked [writeback], and belongs to the kernel's thread; where the kernel charges it
to a control group, that is named: [writeback for /system.slice/cron.service].

Examples:

    # who makes the disks busy, as a flame graph
    sudo fulgur blockio -o disk.html 10

    # by the bytes that a command and its children read and write
    sudo fulgur blockio --weight bytes -- tar -xf archive.tar
`
}

func (c *blockIOCommand) launch(argv []string) { c.Command = argv }

func (c *blockIOCommand) run(ctx context.Context, env environment) (int, error) {
	o, err := c.options()
	if err != nil {
		return exitUsage, usageError{err}
	}
	env.complete(&o.Options)
	return session.BlockIO(ctx, o)
}

// options translates the flags.
func (c *blockIOCommand) options() (session.BlockIOOptions, error) {
	common, err := recording{
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
	return session.BlockIOOptions{
		Options:        common,
		Weight:         c.Weight,
		QueueInLatency: c.Queued,
		PendingEntries: uint32(orZero(c.PendingEntries)),
	}, err
}
