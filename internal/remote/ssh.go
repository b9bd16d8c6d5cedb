package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
)

// SSH is a host that OpenSSH's client reaches, with the user's own configuration.
type SSH struct {
	user, host, port string // user and port are "" if the configuration chooses them
	label            string
}

var (
	userName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._@+-]*$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	address  = regexp.MustCompile(`^\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?\]$`) // of IPv6
)

// ParseSSH parses ssh://[USER@]HOST[:PORT]. HOST may be a name of ssh's configuration. Only characters of
// names are accepted: ssh would take a name that begins with "-" as a flag, and a shell may run in a
// ProxyCommand. Errors are usage errors.
func ParseSSH(url string) (SSH, error) {
	bad := func(what string) (SSH, error) {
		return SSH{}, usage.Errorf("%s: %s: give ssh://HOST, ssh://USER@HOST or ssh://HOST:PORT", plain.Terminal(url), what)
	}
	rest, ok := strings.CutPrefix(url, "ssh://")
	if !ok {
		return bad("not a host")
	}
	var h SSH
	h.host = strings.TrimSuffix(rest, "/")
	h.label = h.host
	if i := strings.LastIndexByte(h.host, '@'); i >= 0 {
		h.user, h.host = h.host[:i], h.host[i+1:]
		if !userName.MatchString(h.user) {
			return bad("not the name of a user")
		}
	}
	if i := strings.LastIndexByte(h.host, ':'); i >= 0 && !strings.HasSuffix(h.host, "]") {
		h.host, h.port = h.host[:i], h.host[i+1:]
		if n, err := strconv.ParseUint(h.port, 10, 16); err != nil || n == 0 {
			return bad("not a port")
		}
	}
	if !hostName.MatchString(h.host) && !address.MatchString(h.host) {
		return bad("not the name of a host")
	}
	// Names of files have the label.
	h.label = strings.NewReplacer(":", "-", "[", "", "]", "").Replace(h.label)
	h.host = strings.Trim(h.host, "[]")
	return h, nil
}

// Label implements [Transport].
func (h SSH) Label() string { return h.label }

// connectTimeout is how long ssh waits for a connection, in seconds, if its configuration does not say.
const connectTimeout = 15

// arguments returns the beginning of ssh's command line, up to the host.
func (h SSH) arguments(options ...string) []string {
	args := append([]string{"ssh"}, options...)
	if h.user != "" {
		args = append(args, "-l", h.user)
	}
	if h.port != "" {
		args = append(args, "-p", h.port)
	}
	return append(args, "--", h.host)
}

// configured returns ssh's own options for the host, by their names in lower case.
func (h SSH) configured(ctx context.Context) map[string]string {
	args := h.arguments("-G")
	text, err := exec.CommandContext(ctx, args[0], args[1:]...).Output()
	if err != nil {
		return nil // the connection says why
	}
	options := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		options[name] = value
	}
	return options
}

// errNoSSH is the error if there is no ssh.
var errNoSSH = errors.New("ssh is missing on this machine: install OpenSSH's client (openssh-client)")

// connect implements [Transport].
func (h SSH) connect(ctx context.Context, s *setup) (*link, error) {
	if _, err := exec.LookPath("ssh"); err != nil {
		return nil, errNoSSH
	}
	i := installer{setup: s, mark: s.mark()}
	script := i.script()
	// Forwardings of the configuration are for the user's shell, and so is a command.
	options := []string{"-T", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "-e", "none"}
	if timeout := h.configured(ctx)["connecttimeout"]; timeout == "" || timeout == "none" || timeout == "0" {
		options = append(options, "-o", "ConnectTimeout="+strconv.Itoa(connectTimeout))
	}
	// The user's shell there, whichever it is, sees no quotes within quotes. Our shell reads the script from
	// its input.
	command := fmt.Sprintf(`exec /bin/sh -c 'eval "$(head -c %d)"'`, len(script))
	l, err := startLink(ctx, append(h.arguments(options...), command), s)
	if err != nil {
		return nil, err
	}
	i.link = l
	if err := i.install(script); err != nil {
		return nil, l.fail(err)
	}
	return l, nil
}

// maxJunk bounds what start-up scripts print before fulgur's own lines, in bytes.
const maxJunk = 64 << 10

// readLine returns the next line that begins with mark, without it. It skips others, up to maxJunk bytes.
func readLine(r *bufio.Reader, mark string) (string, error) {
	for left := maxJunk; ; {
		line, err := r.ReadSlice('\n')
		left -= len(line)
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		if err != nil {
			return "", err
		}
		if left < 0 {
			return "", errGarbled
		}
		if i := bytes.Index(line, []byte(mark+" ")); i >= 0 {
			return strings.TrimSuffix(string(line[i+len(mark)+1:]), "\n"), nil
		}
	}
}
