// Package localhttp serves pages to the browser of the user who started
// fulgur, and to nobody else on the machine or beyond it.
//
// What is served is what root saw of a machine. Whatever runs in a browser can
// ask a server on its machine, and any user of the machine can connect to it.
// Four things guard it: the server listens on the loopback interface alone
// unless told otherwise; every path begins with a random token, which other
// users cannot guess and which no page of the web knows; requests must address
// the server by an IP address or as localhost, so that no name of the web can
// be made to lead here (DNS rebinding); and of pages of other origins those of
// one may ask at most, to which the answers are shared (CORS).
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
)

const (
	// maxConnections is how many connections are held, so that whoever opens many
	// does not take the files that a profiler needs.
	maxConnections = 256
	// maxRequests is how many requests are answered at a time. A browser opens
	// six connections, and each open page may hold one for events.
	maxRequests = 64
	// maxHeader and defaultBody bound what a request may send, in bytes.
	maxHeader   = 32 << 10
	defaultBody = 1 << 20

	headerTimeout = 10 * time.Second
	bodyTimeout   = time.Minute
	answerTimeout = 10 * time.Minute // which may take downloads
	idleTimeout   = 2 * time.Minute
	// grace is how long requests may take to end with the server.
	grace = 2 * time.Second
)

// loopback is the address that only this machine can connect to.
const loopback = "127.0.0.1"

// Options configure a server.
type Options struct {
	// Host is the address or the name of the interface to listen on; empty is
	// 127.0.0.1, which other machines do not reach. Port is the port, one that is
	// free if 0.
	Host string
	Port int
	// MaxBody bounds the body of a request in bytes; 0 is 1 MiB.
	MaxBody int64
	// Origin, if not empty, is the only origin beside the server's own whose pages
	// may ask, such as "https://profiler.firefox.com".
	Origin string
	// Handler answers the requests that are allowed. The paths that it sees
	// begin with "/", without the token. The context of a request ends with the
	// server, too. Who answers for longer than 10 minutes sets deadlines of its
	// own ([http.ResponseController.SetWriteDeadline]).
	Handler http.Handler
}

// Server is a server that listens.
type Server struct {
	listener    net.Listener
	http        http.Server
	connections *connections
	guard       guard
}

// New listens. It fails if o.Host and o.Port cannot be listened on.
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
	held := newConnections(maxConnections)
	s := &Server{
		listener:    listener,
		connections: held,
		guard:       guard{options: o, token: newToken(), slots: make(chan struct{}, maxRequests), know: held.know},
	}
	s.http = http.Server{
		Handler:           &s.guard,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnState:         held.note,
		ConnContext:       held.context,
	}
	return s, nil
}

// newToken returns a text that nobody can guess, of 130 random bits.
func newToken() string { return strings.ToLower(rand.Text()) }

// URL returns the address of the handler's "/", with the token: whoever knows it
// is let in. A server on all addresses is named by one that other machines reach, if
// there is any.
func (s *Server) URL() string {
	return "http://" + reachable(s.listener.Addr(), net.InterfaceAddrs) + "/" + s.guard.token + "/"
}

// reachable returns host and port by which a listener is reached. own are the
// machine's addresses.
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

// reachableOf returns the first address that other machines reach, or that of the
// loopback interface. A listener on the IPv4 address for all has none of IPv6.
func reachableOf(own func() ([]net.Addr, error), all netip.Addr) netip.Addr {
	addresses, _ := own() // none if they cannot be known
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if at := prefix.Addr(); err == nil && at.IsGlobalUnicast() && (at.Is4() || all.Is6()) {
			return at
		}
	}
	return netip.MustParseAddr(loopback)
}

// Close stops listening, for a server that is not served. It does nothing after
// [Server.Serve].
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Serve answers requests until ctx ends, which is no error.
func (s *Server) Serve(ctx context.Context) error {
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(s.listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve pages: %w", err)
	case <-ctx.Done():
	}
	// Requests know of ctx; those that do not heed it are cut off.
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
