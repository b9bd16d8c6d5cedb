package view

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"

	"fulgur/internal/code"
	"fulgur/internal/decode"
)

// loopback is the address that only this machine can connect to.
const loopback = "127.0.0.1"

// mostRequest is the largest body of a request, in bytes: the Firefox Profiler
// asks for all addresses of a file at once.
const mostRequest = 32 << 20

// newToken returns a text that nobody can guess, of 128 random bits and more.
func newToken() string { return strings.ToLower(rand.Text()) }

// server answers requests below its token.
type server struct {
	options Options
	library *code.Library
	token   string
	mux     *http.ServeMux // without the token
}

func newServer(o Options, library *code.Library, token string) *server {
	s := &server{options: o, library: library, token: token, mux: http.NewServeMux()}
	s.mux.Handle("GET /{$}", newFlamePage(o))
	s.mux.Handle("GET /code", &listings{input: o.Input.Profile, library: library})
	s.mux.Handle("/pprof/", http.StripPrefix("/pprof", newPprofPages(o, library)))
	if s.isFirefox() {
		s.mux.Handle("GET /"+profileName, http.HandlerFunc(s.content))
		newSymbolServer(o.Input.Profile, library).register(s.mux)
	}
	return s
}

// isFirefox reports whether the profile is one of the Firefox Profiler's.
func (s *server) isFirefox() bool {
	return s.options.Input.Format == decode.Firefox && s.options.Input.Content != nil
}

// ServeHTTP implements [http.Handler]: it refuses what does not come from our
// pages, or from the Firefox Profiler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	if !s.isOurs(r.Host) {
		http.Error(w, "another host's name: use the address that fulgur printed", http.StatusMisdirectedRequest)
		return
	}
	first, rest, isBelow := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if subtle.ConstantTimeCompare([]byte(first), []byte(s.token)) != 1 {
		http.NotFound(w, r)
		return
	}
	if !s.allow(w, r) {
		return
	}
	if !isBelow {
		http.Redirect(w, r, "/"+s.token+"/", http.StatusPermanentRedirect)
		return
	}
	rest = "/" + rest
	if rest != path.Clean(rest) && rest != path.Clean(rest)+"/" {
		http.NotFound(w, r) // the multiplexer would lead to the clean path
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostRequest)
	below := r.Clone(r.Context())
	below.URL.Path, below.URL.RawPath = rest, ""
	s.mux.ServeHTTP(w, below)
}

// isOurs reports whether the name of a host, with its port, can be that of this
// server. By DNS rebinding a stranger's page reaches it under the stranger's
// name. An address, though, and localhost cannot be made to mean another host;
// the port may differ by way of ssh -L.
func (s *server) isOurs(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	if strings.EqualFold(name, "localhost") || strings.EqualFold(name, s.options.Listen) {
		return true
	}
	_, err = netip.ParseAddr(name)
	return err == nil
}

// allow refuses what pages of other origins ask for, and lets the Firefox
// Profiler read the answers. It reports whether the request is to be answered
// any further.
func (s *server) allow(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	switch {
	case origin == "" || origin == "http://"+r.Host:
		return true
	case origin != profilerOrigin || !s.isFirefox():
		http.Error(w, "not for pages of other origins", http.StatusForbidden)
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", profilerOrigin)
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
