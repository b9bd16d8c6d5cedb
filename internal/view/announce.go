package view

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"

	"fulgur/internal/encode/plain"
)

// link is a page and its address.
type link struct{ what, url string }

// links returns the pages that a server at addr has, with the address of the one
// that shows the profile best first.
func (s *server) links(addr net.Addr) []link {
	base := "http://" + reachable(addr) + "/" + s.token + "/"
	page, pages := link{"Flame graph, source and assembly", base}, link{"pprof", base + "pprof/"}
	switch {
	case s.isFirefox():
		return []link{{"Firefox Profiler", profilerLink(base)}, page, pages}
	case s.options.Input.Content != nil:
		return []link{pages, page}
	}
	return []link{page, pages}
}

// reachable returns host and port by which this machine reaches a listener.
func reachable(addr net.Addr) string {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(netip.MustParseAddr(loopback), at.Port())
	}
	return at.String()
}

// announce tells of the pages, and opens the first one if there is a display.
func announce(ctx context.Context, links []link, o Options) {
	table := tabwriter.NewWriter(o.Stderr, 0, 0, 2, ' ', 0)
	for _, l := range links {
		fmt.Fprintf(table, "%s\t%s\n", l.what, l.url)
	}
	_ = table.Flush() // nobody to tell
	opener := ""
	if !o.NoOpen {
		opener = browser(os.Getenv)
	}
	switch {
	case opener != "":
		open(ctx, opener, links[0].url, o.Stderr)
	case !hasDisplay(os.Getenv):
		tellWay(o.Stderr, links[len(links)-1].url, os.Getenv)
	}
	fmt.Fprintln(o.Stderr, "Ctrl-C ends this.")
}

// hasDisplay reports whether there is something that a browser could show pages
// on.
func hasDisplay(getenv func(string) string) bool {
	return getenv("DISPLAY") != "" || getenv("WAYLAND_DISPLAY") != ""
}

// browser returns the program that opens pages, or "". No browser is started as
// root: pages would have its rights.
func browser(getenv func(string) string) string {
	if !hasDisplay(getenv) || os.Geteuid() == 0 {
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
		fmt.Fprintln(stderr, "No browser was opened:", plain.Error(err))
		return
	}
	go func() { _ = cmd.Wait() }() // it says itself what went wrong
}

// tellWay says how to see the pages of a machine that has no display, of which
// url is one.
func tellWay(w io.Writer, url string, getenv func(string) string) {
	host := strings.Split(strings.TrimPrefix(url, "http://"), "/")[0]
	at, err := netip.ParseAddrPort(host)
	if err != nil || !at.Addr().IsLoopback() {
		return // it is reachable from elsewhere
	}
	fmt.Fprintf(w, "There is no display here. To open the pages on another machine, run there:\n\n    ssh -L %d:%s %s\n\n", at.Port(), at, sshTarget(getenv))
}

// sshTarget returns what ssh calls this machine: by the address under which the
// user reached it, if that is known.
func sshTarget(getenv func(string) string) string {
	name, err := os.Hostname()
	if err != nil {
		name = "HOST"
	}
	// Client address and port, server address and port.
	if way := strings.Fields(getenv("SSH_CONNECTION")); len(way) == 4 {
		name = way[2]
	}
	for _, key := range []string{"SUDO_USER", "USER"} {
		if user := getenv(key); user != "" {
			name = user + "@" + name
			break
		}
	}
	return plain.Terminal(name)
}
