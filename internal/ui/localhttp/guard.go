package localhttp

import (
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"time"
)

// guard rejects unauthorized requests and passes all others to the handler.
type guard struct {
	options Options
	token   string
	slots   chan struct{}         // one slot per request in progress
	know    func(context.Context) // marks a request's connection as one with the token
}

// ServeHTTP implements [http.Handler].
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeader(w.Header())
	if !g.isOurs(r.Host) {
		w.Header().Set("Connection", "close")
		http.Error(w, "wrong host name: use the address that fulgur printed", http.StatusForbidden)
		return
	}
	first, rest, isBelow := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if subtle.ConstantTimeCompare([]byte(first), []byte(g.token)) != 1 {
		w.Header().Set("Connection", "close")
		http.NotFound(w, r)
		return
	}
	g.know(r.Context())
	if !g.allow(w, r) {
		return
	}
	if !isBelow {
		http.Redirect(w, r, "/"+g.token+"/", http.StatusPermanentRedirect)
		return
	}
	rest = "/" + rest
	if rest != path.Clean(rest) && rest != path.Clean(rest)+"/" {
		http.NotFound(w, r) // http.ServeMux would redirect to the clean path, without the token
		return
	}
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	default:
		http.Error(w, "too many requests at a time", http.StatusServiceUnavailable)
		return
	}
	below := r.Clone(r.Context())
	below.URL.Path, below.URL.RawPath = rest, ""
	below.Body = newBody(w, r, g.options.MaxBody)
	g.options.Handler.ServeHTTP(w, below)
}

// setHeader sets the default headers of all answers.
func setHeader(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer") // keeps the token out of other servers' logs
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}

// isOurs reports whether a request's Host can be this server. With DNS rebinding, a
// page of another site reaches the server under that site's name, but it cannot use
// an IP address or localhost. The port is not checked, because ssh -L may change it.
func (g *guard) isOurs(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if strings.EqualFold(name, "localhost") || strings.EqualFold(name, g.options.Host) {
		return true
	}
	_, err = netip.ParseAddr(name)
	return err == nil
}

// allow rejects requests from pages of other origins, except the one allowed origin,
// which may also read the answers. It reports whether to answer the request.
func (g *guard) allow(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	switch {
	case origin == "" || origin == "http://"+r.Host:
		return true
	case origin != g.options.Origin:
		http.Error(w, "request from another origin refused", http.StatusForbidden)
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	if r.Method != http.MethodOptions {
		return true
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	// https://wicg.github.io/private-network-access/
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	w.WriteHeader(http.StatusNoContent)
	return false
}

// body is the body of a request. At its end, it removes the read deadline: net/http
// keeps reading to notice when the client leaves, and would treat the deadline as
// such, which cancels requests that take long to answer.
type body struct {
	io.ReadCloser
	control *http.ResponseController
}

// newBody returns the body of r, limited to limit bytes.
func newBody(w http.ResponseWriter, r *http.Request, limit int64) *body {
	b := &body{http.MaxBytesReader(w, r.Body, limit), http.NewResponseController(w)}
	if r.ContentLength == 0 {
		b.lift()
	}
	return b
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.lift()
	}
	return n, err
}

func (b *body) lift() {
	_ = b.control.SetReadDeadline(time.Time{}) // fails only if deadlines are not supported
}
