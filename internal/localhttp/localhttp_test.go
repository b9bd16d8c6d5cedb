package localhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// echo answers with the path that it sees.
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

func TestGuards(t *testing.T) {
	s := listen(t, Options{Handler: echo})
	t.Cleanup(func() { s.Close() })
	token := "/" + s.token
	for _, c := range []struct {
		name, host, path string
		want             int
		body             string
	}{
		{"root", "127.0.0.1:8000", token + "/", 200, "path /"},
		{"deeper", "127.0.0.1", token + "/a/b", 200, "path /a/b"},
		{"localhost", "LocalHost:8000", token + "/", 200, "path /"},
		{"IPv6", "[::1]:8000", token + "/", 200, "path /"},
		{"IPv6 without a port", "[::1]", token + "/", 200, "path /"},
		{"escaped slash", "127.0.0.1", token + "/a%2Fb", 200, "path /a/b"},
		{"no token", "127.0.0.1", "/", 404, ""},
		{"token alone", "127.0.0.1", token, 404, ""},
		{"other token", "127.0.0.1", "/" + strings.Repeat("A", len(s.token)) + "/", 404, ""},
		{"beginning of the token", "127.0.0.1", token[:5] + "/", 404, ""},
		{"around the token", "127.0.0.1", "/x/.." + token + "/", 404, ""},
		{"rebound name", "attacker.example:8000", token + "/", 403, ""},
		{"name that begins as an address", "127.0.0.1.attacker.example", token + "/", 403, ""},
		{"name below localhost", "localhost.attacker.example", token + "/", 403, ""},
		{"no host", "", token + "/", 403, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, c.path, http.NoBody)
			r.Host = c.host
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != c.want || c.want == 200 && w.Body.String() != c.body {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, c.want, c.body)
			}
			if strings.Contains(w.Body.String(), s.token) && c.want != 200 {
				t.Error("the answer tells the token")
			}
		})
	}
}

func TestTokensDiffer(t *testing.T) {
	a, b := listen(t, Options{Handler: echo}), listen(t, Options{Handler: echo})
	defer a.Close()
	defer b.Close()
	if a.token == b.token || len(a.token) < 20 {
		t.Errorf("tokens %q and %q", a.token, b.token)
	}
}

func TestLoopbackOnly(t *testing.T) {
	if _, err := New(Options{Address: "0.0.0.0:0", Handler: echo}); !errors.Is(err, ErrNotLoopback) {
		t.Errorf("error %v, want %v", err, ErrNotLoopback)
	}
	s := listen(t, Options{Address: "0.0.0.0:0", Remote: true, Handler: echo})
	defer s.Close()
	if !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("URL %s", s.URL())
	}
}

func TestLimits(t *testing.T) {
	var err error
	s := listen(t, Options{MaxBody: 10, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err = io.ReadAll(r.Body)
	})})
	defer s.Close()
	ask := func(body string) int {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/"+s.token+"/", strings.NewReader(body))
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	if ask("0123456789"); err != nil {
		t.Errorf("a body of the size allowed: %v", err)
	}
	if ask("0123456789+"); !errors.As(err, new(*http.MaxBytesError)) {
		t.Errorf("error of a longer one: %v", err)
	}
	for range mostRequests {
		s.slots <- struct{}{}
	}
	if code := ask(""); code != http.StatusServiceUnavailable {
		t.Errorf("status %d beyond the most requests", code)
	}
}

// Serve answers over a connection, and ends with its context though a request is
// still under way.
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
		t.Errorf("%q, %v", body, err)
	}
	if got := response.Header.Get("Referrer-Policy"); got != "no-referrer" {
		t.Errorf("Referrer-Policy %q: links would tell the token", got)
	}
	if response, err = http.Get(s.URL() + "events"); err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	<-begun
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := http.Get(s.URL()); err == nil {
		t.Error("still listens")
	}
}
