package main

import (
	"context"

	"fulgur/internal/capture/blockio"
	"fulgur/internal/session"
)

// blockIOCommand has the flags of the commands that write profiles, and -Q of bcc's
// biolatency.
type blockIOCommand struct {
	subjectFlags

	profileFlags
	Weight         string `placeholder:"VALUE" group:"output" help:"Weigh stacks by requests, bytes, queued (time before the device gets the request), in-device, or latency (queued plus in-device, the default). pprof files have all values."`
	Queued         bool   `short:"Q" name:"queued" group:"output" help:"Include queue time in the histograms."`
	PendingEntries *count `placeholder:"N" group:"limit" help:"Maximum number of requests in flight to track."`
}

// Help returns the text of fulgur blockio --help besides the flags.
func (*blockIOCommand) Help() string {
	return `Measures disk requests by the stack that made them, with the file (if known), the disk
and the operation on top: [/var/log/syslog];[sda write sync]. At the end it lists the
files with the most requests, and prints a latency histogram for each disk and
operation. Writeback, which the kernel does some time after a program's write, belongs
to a kernel thread and is marked [writeback], with the control group that the kernel
charges for it: [writeback for /system.slice/cron.service].

Examples:

    # disk requests of the whole machine, as a flame graph
    sudo fulgur blockio -o disk.html 10

    # the same by bytes, for a command and its children
    sudo fulgur blockio --weight bytes -- tar -xf archive.tar
`
}

func (c *blockIOCommand) run(ctx context.Context, env environment) (int, error) {
	o, err := c.options()
	if err != nil {
		return exitUsage, usageError{err}
	}
	env.complete(&o.Options)
	return session.Measure(ctx, o.Options, blockio.New(o.Config))
}

// blockIOOptions are the options that the flags select.
type blockIOOptions struct {
	session.Options
	blockio.Config
}

// options translates the flags.
func (c *blockIOCommand) options() (blockIOOptions, error) {
	common, err := sessionOptions(c.subjectFlags, c.profileFlags)
	return blockIOOptions{common, blockio.Config{
		Weight:         c.Weight,
		QueueInLatency: c.Queued,
		PendingEntries: uint32(orZero(c.PendingEntries)),
	}}, err
}
