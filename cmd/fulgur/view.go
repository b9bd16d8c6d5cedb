package main

import (
	"context"

	"fulgur/internal/session/offline"
)

// viewCommand shows a profile in a browser.
type viewCommand struct {
	File string `arg:"" complete:"file" help:"The profile to show, in any format that fulgur convert reads; - is standard input."`

	Base  string `placeholder:"FILE" complete:"file" group:"contents" help:"Show what changed since this profile."`
	Value string `placeholder:"TYPE" group:"contents" help:"Show this value at first, as off-cpu, or with --base compare it. Default: the one that the profile is meant for, or the first that both have and that is not 0 in at least one."`

	Listen string `default:"127.0.0.1" placeholder:"ADDRESS" group:"server" help:"Listen on this address, for other machines to connect to. Default: 127.0.0.1, which only this machine can."`
	Port   uint16 `placeholder:"PORT" group:"server" help:"Listen on this port. Default: any that is free."`
	NoOpen bool   `group:"server" help:"Open no browser; print addresses only."`
	Quiet  bool   `short:"q" group:"server" help:"No warnings on standard error."`
}

// Help is what fulgur view --help says beside the flags.
func (*viewCommand) Help() string {
	return `Serves a profile to browsers until Ctrl-C, and opens one if there is a display: as a
flame graph, with the source and the instructions of each function and the samples
at every line; in pprof's pages; and, if the profile is one of the Firefox
Profiler's, in that, which then gets names, sources and instructions from here.
But for the Firefox Profiler's page, which comes from its site, no network is needed.

Names, sources and instructions come from the files of this machine, if they are
the builds that ran, and from debuginfod if DEBUGINFOD_URLS is set.

Only who knows the printed address can see anything: it has a random part.

Examples:

    fulgur profile -o cpu.json.gz 10
    fulgur view cpu.json.gz

    # pprof's own pages, of what changed
    fulgur view --base before.pb.gz after.pb.gz

    # on a server, at a port that ssh -L 4000:127.0.0.1:4000 leads to
    fulgur view --port 4000 perf.data
`
}

func (c *viewCommand) run(ctx context.Context, env environment) (int, error) {
	o := c.options()
	o.Stderr = env.stderr
	return offline.View(ctx, o)
}

// options translates the flags.
func (c *viewCommand) options() offline.ViewOptions {
	return offline.ViewOptions{
		Input:  c.File,
		Base:   c.Base,
		Value:  c.Value,
		Listen: c.Listen,
		Port:   int(c.Port),
		NoOpen: c.NoOpen,
		Quiet:  c.Quiet,
	}
}
