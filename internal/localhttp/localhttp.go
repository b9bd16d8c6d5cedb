// Package localhttp serves pages to the browser of the user who started
// fulgur, and to nobody else on the machine or beyond it.
//
// What is served is what root saw of a machine. Three things guard it: the
// server listens on the loopback interface alone unless told otherwise; every
// path begins with a random token, which other users cannot guess and which no
// page of the web knows; and requests must address the server by an IP address
// or as localhost, so that no name of the web can be made to lead here (DNS
// rebinding).
package localhttp

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

const (
	// mostRequests is how many requests are answered at a time. A browser opens
	// six connections, and each open page may hold one for events.
	mostRequests = 64
	// mostHeader and defaultBody bound what a request may send, in bytes.
	mostHeader  = 32 << 10
	defaultBody = 1 << 20

	headerTimeout = 10 * time.Second
	bodyTimeout   = time.Minute
	idleTimeout   = 2 * time.Minute
	// grace is how long requests may take to end with the server.
	grace = 2 * time.Second
)

// Options configure a server.
type Options struct {
	// Address is where to listen, HOST:PORT; empty is 127.0.0.1 and a port that
	// is free. Port 0 is a free one, too.
	Address string
	// Remote allows addresses that other machines reach.
	Remote bool
	// MaxBody bounds the body of a request in bytes; 0 is 1 MiB.
	MaxBody int64
	// Handler answers the requests that are allowed. The paths that it sees
	// begin with "/", without the token. The context of a request ends with the
	// server, too.
	Handler http.Handler
}

// Server is a server that listens.
type Server struct {
	listener net.Listener
	token    string
	http     http.Server
	slots    chan struct{} // a place for each request that is being answered
	maxBody  int64
	handler  http.Handler
}

// ErrNotLoopback is returned for an address that other machines reach, if that was
// not allowed.
var ErrNotLoopback = errors.New("address is not on the loopback interface")

// New listens. It fails if o.Address cannot be listened on, or with
// [ErrNotLoopback].
func New(o Options) (*Server, error) {
	address := o.Address
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for a browser: %w", err)
	}
	if !o.Remote && !isLoopback(listener) {
		return nil, errors.Join(fmt.Errorf("listen for a browser on %s: %w", address, ErrNotLoopback), listener.Close())
	}
	s := &Server{
		listener: listener,
		token:    rand.Text(),
		slots:    make(chan struct{}, mostRequests),
		maxBody:  o.MaxBody,
		handler:  o.Handler,
	}
	if s.maxBody == 0 {
		s.maxBody = defaultBody
	}
	s.http = http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    mostHeader,
	}
	return s, nil
}

func isLoopback(l net.Listener) bool {
	address, ok := l.Addr().(*net.TCPAddr)
	return ok && address.IP.IsLoopback()
}

// URL returns the address of the handler's "/", with the token: whoever knows it
// is let in. A server on all addresses is named by that of the loopback
// interface.
func (s *Server) URL() string {
	address := s.listener.Addr().(*net.TCPAddr).AddrPort()
	if address.Addr().IsUnspecified() {
		address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), address.Port())
	}
	return fmt.Sprintf("http://%s/%s/", address, s.token)
}

// Port returns the port that the server listens on.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

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
	if err := s.http.Shutdown(end); err != nil {
		return s.http.Close()
	}
	return nil
}

// ServeHTTP implements [http.Handler]: it turns away who is not meant, and hands
// all others to the handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		http.Error(w, "too many requests at a time", http.StatusServiceUnavailable)
		return
	}
	if !trusted(r.Host) {
		http.Error(w, "this server answers to IP addresses and to localhost only", http.StatusForbidden)
		return
	}
	token, path, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if !ok || subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 0 {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer") // or links would tell the token
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "SAMEORIGIN")
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = "/"+path, ""
	r.Body = http.MaxBytesReader(w, r.Body, s.maxBody)
	s.handler.ServeHTTP(w, r)
}

// trusted reports whether the Host of a request cannot be a name that somebody
// else chose. Its port says nothing: it is another one behind ssh -L.
func trusted(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}
