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

// guard turns away who is not meant, and hands all other requests to the handler.
type guard struct {
	options Options
	token   string
	slots   chan struct{}         // a place for each request that is being answered
	know    func(context.Context) // notes that the connection of a request is of who knows the token
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
		http.NotFound(w, r) // a multiplexer would lead to the clean path, without the token
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

// setHeader sets what browsers are told with every answer, unless the handler
// knows better.
func setHeader(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer") // or links would tell the token
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}

// isOurs reports whether the Host of a request can be this server. By DNS
// rebinding a stranger's page reaches it under the stranger's name. An address,
// though, and localhost cannot be made to mean another host. The port says
// nothing: it is another one behind ssh -L.
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

// allow refuses what pages of other origins ask for, but for the one that may,
// which it lets read the answers. It reports whether the request is to be
// answered any further.
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

// body is that of a request. When it was read it lifts the deadline for that:
// net/http goes on reading, to notice that the client left, and would take the
// deadline's end for it, which cancels a request that takes long to answer.
type body struct {
	io.ReadCloser
	control *http.ResponseController
}

// newBody returns the body of r, of limit bytes at most.
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
	_ = b.control.SetReadDeadline(time.Time{}) // there is none where it is not supported
}
