package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/session"
	"fulgur/internal/ui/live"
	"fulgur/internal/ui/localhttp"
)

// servedInterval is the default length of the windows of a served flame graph: long
// enough for steady shares at the default frequency.
const servedInterval = 5 * time.Second

// liveFlags select live output.
type liveFlags struct {
	Stream   bool    `group:"live" help:"Write every sample with its stack as it is taken; --format jsonl writes JSON lines."`
	Interval seconds `placeholder:"TIME" group:"live" help:"Write a profile every TIME; -o name.pb.gz writes name-0001.pb.gz and so on."`
	Keep     *count  `placeholder:"N" group:"live" help:"With --interval, keep only the last N files."`
	Serve    bool    `group:"live" help:"Serve a flame graph of each interval (default: 5 seconds) to browsers on this machine."`
	Port     *port   `placeholder:"PORT" group:"live" help:"With --serve, listen on this port. Default: any free port."`
}

// isWindows reports whether the output is a profile per window.
func (f liveFlags) isWindows() bool { return f.Interval > 0 || f.Serve }

// check returns an error for invalid combinations of flags.
func (c *profileCommand) check(output string) error {
	switch {
	case c.TUI && (output != "" || c.Format != "" || c.Folded || c.Stream || c.isWindows()):
		return errors.New("--tui shows the profile on the terminal: it cannot be combined with -o, --format, -f, --stream, --interval or --serve")
	case c.Wall && c.Idle:
		return errors.New("--wall and -I cannot be combined: --wall measures time of threads")
	case c.Parallelism && c.Idle:
		return errors.New("--parallelism and -I cannot be combined: an idle CPU runs no thread")
	case c.Parallelism && (c.Wall || c.Times || c.Stream):
		return errors.New("--parallelism cannot be combined with --wall, --times or --stream: it divides CPU time, in sums")
	case c.PendingEntries != nil && !c.Wall:
		return errors.New("--pending-entries needs --wall: only waiting threads are tracked")
	case c.StackNodes != nil && !c.Times:
		return errors.New("--stack-nodes needs --times: only then, each sample keeps its stack")
	case c.Stream && c.Wall:
		return errors.New("--stream and --wall cannot be combined: use --interval or --serve with --wall, or fulgur record for individual waits")
	case c.Stream && c.By.kind != profile.GroupNone:
		return errors.New("--stream and --by cannot be combined: use --interval or --serve with --by")
	case c.Stream && c.isWindows():
		return errors.New("--stream cannot be combined with --interval or --serve")
	case c.Keep != nil && (c.Interval == 0 || output == "" && c.Serve):
		return errors.New("--keep needs --interval and -o")
	case c.Port != nil && !c.Serve:
		return errors.New("--port needs --serve")
	}
	return nil
}

// windows takes a profile of every interval, and writes or serves it.
func (c *profileCommand) windows(ctx context.Context, o session.ProfileOptions) (exitCode int, err error) {
	o.Every = time.Duration(c.Interval)
	var to session.Sinks
	if !c.Serve || o.Output != "" {
		files, err := session.Files(&o.Options, int(orZero(c.Keep)))
		if err != nil {
			return exitFailed, err
		}
		to = append(to, files)
	}
	if c.Serve {
		if o.Every == 0 {
			o.Every = servedInterval
		}
		page := live.New()
		server, stop, failed := serve(page, int(orZero(c.Port)))
		if failed != nil {
			return exitFailed, failed
		}
		o.Ready = func() { printURL(server, o.Stderr) }
		defer func() {
			if failed := stop(); failed != nil {
				exitCode, err = exitFailed, errors.Join(err, failed)
			}
		}()
		to = append(to, session.SinkFunc(func(_ context.Context, w session.Window) error {
			return page.Add(w.Profile, flame.Options{Value: w.Value, Inverted: o.Inverted, Native: o.Native})
		}))
	}
	return session.Run(ctx, &o.Options, o.Subject(), to)
}

// printURL prints the address of a page.
func printURL(server *localhttp.Server, out io.Writer) {
	fmt.Fprintf(out, "Live flame graph: %s\n", server.URL())
	if !localhttp.HasDisplay(os.Getenv) {
		server.PrintSSHCommand(out, os.Getenv)
	}
}

// serve serves a page until stop is called.
func serve(page *live.Page, port int) (server *localhttp.Server, stop func() error, err error) {
	server, err = localhttp.New(localhttp.Options{Port: port, Handler: page})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	return server, func() error {
		page.End()
		cancel()
		return <-served
	}, nil
}
