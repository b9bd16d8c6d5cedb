package main

import (
	"context"
	"io"
	"os"

	"fulgur/internal/offline"
	"fulgur/internal/profile"
	"fulgur/internal/ui/top"
)

// viewCommand shows a profile in a browser.
type viewCommand struct {
	File string `arg:"" complete:"file" missing:"give a profile, or - for standard input" help:"The profile to show, in any format that fulgur convert reads; - is standard input."`

	Base  string  `placeholder:"FILE" complete:"file" group:"contents" help:"Show the changes since this profile."`
	Value string  `placeholder:"TYPE" group:"contents" help:"Show this value first, for example off-cpu; with --base, compare it. Default: the profile's default value; with --base, the first value that both profiles have and that is not 0 in at least one of them."`
	By    *groups `placeholder:"KIND" group:"contents" help:"Separate the containers, Kubernetes pods or systemd units in a pprof or OTLP profile: container, pod or unit; or the values of a label: label=KEY. The name is the first frame of the flame graph. none removes the groups."`
	filterFlags
	ShortNames bool `group:"contents" help:"Show short names of C++, Rust and Go functions first: without template arguments, outer namespaces and package paths. The flame graph has a switch for it."`
	nativeFlag
	TUI bool `name:"tui" group:"contents" help:"Show the flame graph on the terminal instead of in a browser. ? lists the keys."`

	Listen   string `default:"127.0.0.1" placeholder:"ADDRESS" group:"server" help:"Listen on this address. Default: 127.0.0.1, which only this machine can reach."`
	Port     uint16 `placeholder:"PORT" group:"server" help:"Listen on this port. Default: any free port."`
	NoOpen   bool   `group:"server" help:"Print the addresses without opening a browser."`
	UntilEOF bool   `name:"until-eof" hidden:"" group:"server" help:"End when standard input ends."`
	Symfs    string `placeholder:"DIR" group:"contents" help:"Look for binaries and debug files in DIR first, as if it were the root directory."`
	Quiet    bool   `short:"q" group:"server" help:"Do not print warnings to standard error."`
}

// Help returns the text of fulgur view --help besides the flags.
func (*viewCommand) Help() string {
	return `Serves a profile to browsers until Ctrl-C, and opens a browser if there is a display.
The pages are fulgur's flame graph, with the source and assembly of each function and
the samples at each line; pprof's pages; and, for files in its format, the Firefox
Profiler, with names, source and assembly from this machine. Only the Firefox Profiler
needs a network: its page comes from profiler.firefox.com.

Names, source and assembly come from files of the same build on this machine, and from
debuginfod if DEBUGINFOD_URLS is set.

The printed address has a random part, which other users of the machine cannot guess.

Examples:

    sudo fulgur profile -o cpu.json.gz 10
    fulgur view cpu.json.gz

    # the changes between two profiles
    fulgur view --base before.pb.gz after.pb.gz

    # on the terminal
    fulgur view --tui cpu.json.gz

    # on a server, with a tunnel from your machine: ssh -L 4000:127.0.0.1:4000 server
    fulgur view --port 4000 perf.data
`
}

func (c *viewCommand) run(ctx context.Context, env environment) (int, error) {
	o := c.options()
	o.Stderr = env.stderr
	var err error
	if o.Filters, err = c.list(); err != nil {
		return exitUsage, err
	}
	if c.UntilEOF {
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		defer end()
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // an error ends it, too
			end()
		}()
	}
	if c.TUI {
		out, ok := env.screen()
		if !ok {
			return exitUsage, usageError{errNoScreen}
		}
		o.Show = func(ctx context.Context, title string, p *profile.Profile) error {
			return explore(ctx, out, top.Options{Title: title, Colored: isColored(), Native: c.Native}, p)
		}
	}
	return offline.View(ctx, o)
}

// options translates the flags.
func (c *viewCommand) options() offline.ViewOptions {
	return offline.ViewOptions{
		Input:      c.File,
		Base:       c.Base,
		Value:      c.Value,
		By:         c.By.offline(),
		ShortNames: c.ShortNames,
		Native:     c.Native,
		Symfs:      c.Symfs,
		Listen:     c.Listen,
		Port:       int(c.Port),
		NoOpen:     c.NoOpen,
		Quiet:      c.Quiet,
	}
}
