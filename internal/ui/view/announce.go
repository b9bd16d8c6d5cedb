package view

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"text/tabwriter"

	"fulgur/internal/message/plain"
	"fulgur/internal/ui/localhttp"
)

// link is a page and its address.
type link struct{ what, url string }

// links returns the pages that are served below base, with the address of the one
// that shows the profile best first.
func links(base string, in Input) []link {
	page, pages := link{"Flame graph, source and assembly", base}, link{"pprof", base + "pprof/"}
	switch {
	case in.isFirefox():
		return []link{{"Firefox Profiler", profilerLink(base)}, page, pages}
	case in.Content != nil:
		return []link{pages, page}
	}
	return []link{page, pages}
}

// announce tells of the pages, and opens the first one if there is a display.
func announce(ctx context.Context, server *localhttp.Server, o Options) {
	pages := links(server.URL(), o.Input)
	table := tabwriter.NewWriter(o.Stderr, 0, 0, 2, ' ', 0)
	for _, l := range pages {
		fmt.Fprintf(table, "%s\t%s\n", l.what, l.url)
	}
	_ = table.Flush() // nobody to tell
	opener := ""
	if !o.NoOpen {
		opener = browser(os.Getenv)
	}
	switch {
	case opener != "":
		open(ctx, opener, pages[0].url, o.Stderr)
	case !localhttp.HasDisplay(os.Getenv):
		server.TellWay(o.Stderr, os.Getenv)
	}
	fmt.Fprintln(o.Stderr, "Press Ctrl-C to stop.")
}

// browser returns the program that opens pages, or "". No browser is started as
// root: pages would have its rights.
func browser(getenv func(string) string) string {
	if !localhttp.HasDisplay(getenv) || os.Geteuid() == 0 {
		return ""
	}
	path, err := exec.LookPath("xdg-open")
	if err != nil {
		return ""
	}
	return path
}

// open has a program open a page. The program lives on when ctx ends, with the
// browser that it may have become.
func open(ctx context.Context, program, url string, stderr io.Writer) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, url)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, "Could not open a browser:", plain.Error(err))
		return
	}
	go func() { _ = cmd.Wait() }() // it says itself what went wrong
}
