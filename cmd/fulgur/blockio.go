package main

import (
	"context"

	"fulgur/internal/capture/blockio"
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
files with the most requests, and prints percentiles and a histogram for each disk and
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
	return env.measure(ctx, c.subjectFlags, c.profileFlags, blockio.New(c.config()))
}

// config translates the command's own flags.
func (c *blockIOCommand) config() blockio.Config {
	return blockio.Config{
		Weight:         c.Weight,
		QueueInLatency: c.Queued,
		PendingEntries: uint32(orZero(c.PendingEntries)),
	}
}
