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

// links returns the pages served below base. The first is the best for the profile's
// format. address is [Options.Address], which only the flame graph has.
func links(base, address string, in Input) []link {
	page, pages := link{"Flame graph, source and assembly", base}, link{"pprof", base + "pprof/"}
	if address != "" {
		page.url += "#" + address
		return []link{page, pages}
	}
	switch {
	case in.isFirefox():
		return []link{{"Firefox Profiler", profilerLink(base)}, page, pages}
	case in.Content != nil:
		return []link{pages, page}
	}
	return []link{page, pages}
}

// announce prints the pages' addresses, and opens the first page if there is a
// display.
func announce(ctx context.Context, server *localhttp.Server, o Options) {
	pages := links(server.URL(), o.Address, o.Input)
	table := tabwriter.NewWriter(o.Stderr, 0, 0, 2, ' ', 0)
	for _, l := range pages {
		fmt.Fprintf(table, "%s\t%s\n", l.what, l.url)
	}
	_ = table.Flush() // stderr: nobody to report to
	opener := ""
	if !o.NoOpen {
		opener = browser(os.Getenv)
	}
	switch {
	case opener != "":
		open(ctx, opener, pages[0].url, o.Stderr)
	case !localhttp.HasDisplay(os.Getenv):
		server.PrintSSHCommand(o.Stderr, os.Getenv)
	}
	fmt.Fprintln(o.Stderr, "Press Ctrl-C to stop.")
}

// browser returns the program that opens pages, or "". A browser is never started as
// root: it would run with root's privileges.
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

// open starts a program to open a page. The program, which may become the browser,
// keeps running when ctx ends.
func open(ctx context.Context, program, url string, stderr io.Writer) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, url)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, "Could not open a browser:", plain.Error(err))
		return
	}
	go func() { _ = cmd.Wait() }() // the program reports its own errors
}
