// Package localhttp serves pages only to the browser of the user who started fulgur.
//
// The pages contain data that root collected. Any program in a browser can send
// requests to a server on its machine, and any user of the machine can connect to
// it. Four things protect the server: it listens on the loopback interface unless
// configured otherwise. Every path begins with a random token, unknown to other
// users and web pages. Requests must address the server by an IP address or as
// localhost, which prevents DNS rebinding. And pages of at most one other origin may
// send requests and read the answers (CORS).
package localhttp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"fulgur/internal/ui/connlimit"
)

const (
	// maxRequests limits concurrent requests. A browser opens six connections,
	// and each open page may use one for events.
	maxRequests = 64
	// maxHeader and defaultBody limit the size of a request, in bytes.
	maxHeader   = 32 << 10
	defaultBody = 1 << 20

	headerTimeout = 10 * time.Second
	bodyTimeout   = time.Minute
	answerTimeout = 10 * time.Minute // may include downloads
	idleTimeout   = 2 * time.Minute
	// grace is the time that requests get to finish when the server ends.
	grace = 2 * time.Second
)

// loopback is reachable from this machine only.
const loopback = "127.0.0.1"

// Options configure a server.
type Options struct {
	// Host is the address or name of the interface to listen on; empty means
	// 127.0.0.1, which other machines cannot reach. Port is the port; 0 means
	// any free port.
	Host string
	Port int
	// MaxBody limits the body of a request in bytes; 0 means 1 MiB.
	MaxBody int64
	// Origin, if not empty, is the only other origin whose pages may send
	// requests, such as "https://profiler.firefox.com".
	Origin string
	// Handler answers the allowed requests. Their paths begin with "/", without
	// the token. A request's context ends with the server, too. Answers that
	// take longer than 10 minutes set their own deadlines
	// ([http.ResponseController.SetWriteDeadline]).
	Handler http.Handler
}

// Server is a listening server.
type Server struct {
	listener net.Listener
	http     http.Server
	guard    guard
}

// New returns a server that listens on o.Host and o.Port.
func New(o Options) (*Server, error) {
	if o.Host == "" {
		o.Host = loopback
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(o.Host, fmt.Sprint(o.Port)))
	if err != nil {
		return nil, fmt.Errorf("cannot serve pages: %w", err)
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultBody
	}
	s := &Server{listener: listener, guard: guard{options: o, token: newToken(), slots: make(chan struct{}, maxRequests)}}
	s.http = http.Server{
		Handler:           &s.guard,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}
	// Every user of the machine can connect, but only users with the token get answers:
	// they are known from their first request on.
	s.guard.know = connlimit.Limit(&s.http).Know
	return s, nil
}

// newToken returns an unguessable text of 130 random bits.
func newToken() string { return strings.ToLower(rand.Text()) }

// URL returns the address of the handler's "/", including the token, which grants
// access. For a server on all interfaces, it prefers an address that other machines
// can reach.
func (s *Server) URL() string {
	return "http://" + reachable(s.listener.Addr(), net.InterfaceAddrs) + "/" + s.guard.token + "/"
}

// reachable returns the host and port of a listener. own returns the machine's
// addresses.
func reachable(addr net.Addr, own func() ([]net.Addr, error)) string {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(reachableOf(own, at.Addr()), at.Port())
	}
	return at.String()
}

// reachableOf returns the first address that other machines can reach, or else the
// loopback address. If all is the IPv4 wildcard, it considers IPv4 addresses only.
func reachableOf(own func() ([]net.Addr, error), all netip.Addr) netip.Addr {
	addresses, _ := own() // empty on error
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if at := prefix.Addr(); err == nil && at.IsGlobalUnicast() && (at.Is4() || all.Is6()) {
			return at
		}
	}
	return netip.MustParseAddr(loopback)
}

// Close stops a server that was never served. It does nothing after [Server.Serve].
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Serve answers requests until ctx ends, which is not an error.
func (s *Server) Serve(ctx context.Context) error {
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(s.listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve pages: %w", err)
	case <-ctx.Done():
	}
	// Requests see the end of ctx. After the grace period, they are cut off.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := s.http.Shutdown(end)
	if err != nil {
		err = s.http.Close()
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
