package localhttp

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"fulgur/internal/message/plain"
)

// PrintSSHCommand prints on w how to open the pages from another machine, if this machine
// has no display. It prints nothing if the server is reachable from other machines.
// getenv is [os.Getenv].
func (s *Server) PrintSSHCommand(w io.Writer, getenv func(string) string) {
	printSSHCommand(w, s.listener.Addr().String(), getenv)
}

func printSSHCommand(w io.Writer, address string, getenv func(string) string) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() {
		return
	}
	fmt.Fprintf(w, "No display. To open the pages on another machine, run this there:\n\n    ssh -L %d:%s %s\n\n", at.Port(), at, sshTarget(getenv))
}

// sshTarget returns the ssh target for this machine, with the address that the user
// connected to if known.
func sshTarget(getenv func(string) string) string {
	name, err := os.Hostname()
	if err != nil {
		name = "HOST"
	}
	// Client address and port, then server address and port.
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

// HasDisplay reports whether a browser can show pages on this machine. getenv is
// [os.Getenv].
func HasDisplay(getenv func(string) string) bool {
	return getenv("DISPLAY") != "" || getenv("WAYLAND_DISPLAY") != ""
}
