package localhttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// echo responds with the path of the request.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "path "+r.URL.Path)
})

func listen(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTokensDiffer(t *testing.T) {
	a, b := listen(t, Options{Handler: echo}), listen(t, Options{Handler: echo})
	defer a.Close()
	defer b.Close()
	if a.guard.token == b.guard.token || len(a.guard.token) < 20 {
		t.Errorf("got tokens %q and %q, want long ones that differ", a.guard.token, b.guard.token)
	}
}

func TestReachable(t *testing.T) {
	network := func(addresses ...string) (all []net.Addr) {
		for _, a := range addresses {
			all = append(all, &net.IPNet{IP: net.ParseIP(a), Mask: net.CIDRMask(8, 8*len(net.ParseIP(a)))})
		}
		return all
	}
	alone, joined := network("127.0.0.1", "::1", "fe80::1"), network("127.0.0.1", "::1", "fe80::1", "2001:db8::5", "10.9.8.7")
	for _, test := range []struct {
		listen string
		own    []net.Addr
		want   string
	}{
		{"127.0.0.1", joined, "127.0.0.1:4000"},
		{"10.1.2.3", joined, "10.1.2.3:4000"},
		{"::1", joined, "[::1]:4000"},
		{"0.0.0.0", alone, "127.0.0.1:4000"},
		{"0.0.0.0", joined, "10.9.8.7:4000"},
		{"::", joined, "[2001:db8::5]:4000"},
	} {
		if got := reachable(&net.TCPAddr{IP: net.ParseIP(test.listen), Port: 4000}, func() ([]net.Addr, error) { return test.own, nil }); got != test.want {
			t.Errorf("listening on %s of %v: got %s, want %s", test.listen, test.own, got, test.want)
		}
	}
}

func TestLimits(t *testing.T) {
	var err error
	s := listen(t, Options{MaxBody: 10, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err = io.ReadAll(r.Body)
	})})
	defer s.Close()
	ask := func(body string) int {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/"+s.guard.token+"/", strings.NewReader(body))
		w := httptest.NewRecorder()
		s.guard.ServeHTTP(w, r)
		return w.Code
	}
	if ask("0123456789"); err != nil {
		t.Errorf("body of the maximum size: got error %v", err)
	}
	if ask("0123456789+"); !errors.As(err, new(*http.MaxBytesError)) {
		t.Errorf("longer body: got error %v, want a MaxBytesError", err)
	}
	for range maxRequests {
		s.guard.slots <- struct{}{}
	}
	if code := ask(""); code != http.StatusServiceUnavailable {
		t.Errorf("got status %d above the limit of requests, want %d", code, http.StatusServiceUnavailable)
	}
}

// The deadline for reading a request does not limit the time of the response.
func TestDeadline(t *testing.T) {
	for _, test := range []struct{ method, body string }{{http.MethodGet, ""}, {http.MethodPost, "body"}} {
		w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		s := listen(t, Options{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if w.lifted != (test.body == "") {
				t.Errorf("%s: got deadline removed before reading: %v", test.method, w.lifted)
			}
			if _, err := io.ReadAll(r.Body); err != nil {
				t.Error(err)
			}
			if !w.lifted {
				t.Errorf("%s: got a read deadline during the response", test.method)
			}
		})})
		t.Cleanup(func() { s.Close() })
		s.guard.ServeHTTP(w, httptest.NewRequest(test.method, s.URL(), strings.NewReader(test.body)))
	}
}

// deadlined records whether the read deadline is removed.
type deadlined struct {
	*httptest.ResponseRecorder
	lifted bool
}

func (d *deadlined) SetReadDeadline(at time.Time) error {
	d.lifted = at.IsZero()
	return nil
}

// Serve serves a listener, and ends with its context despite a pending request.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	s := listen(t, Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			close(begun)
			<-r.Context().Done()
			return
		}
		echo(w, r)
	})})
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }()
	response, err := http.Get(s.URL() + "page")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if string(body) != "path /page" || err != nil {
		t.Errorf("got %q, %v; want path /page", body, err)
	}
	if got := response.Header.Get("Referrer-Policy"); got != "no-referrer" {
		t.Errorf("got Referrer-Policy %q: links would leak the token", got)
	}
	if response, err = http.Get(s.URL() + "events"); err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	testenv.Receive(t, begun, "the handler is not called")
	cancel()
	if err := testenv.Receive(t, served, "the server does not end"); err != nil {
		t.Error(err)
	}
	if _, err := http.Get(s.URL()); err == nil {
		t.Error("the server still listens")
	}
}
