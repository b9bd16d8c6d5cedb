package localhttp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// friend is the allowed origin.
const friend = "https://friend.example"

// Without the token, a request learns nothing and cannot leave the token's path.
func TestToken(t *testing.T) {
	s := listen(t, Options{Handler: echo, Origin: friend})
	defer s.Close()
	token := "/" + s.guard.token
	for path, want := range map[string]string{
		token + "/": "path /", token + "/a/b": "path /a/b", token + "/a/": "path /a/", token + "/a%2Fb": "path /a/b",
		token: "redirect", "/": "", "/a": "", "/x/": "", token[:5] + "/": "", token + "2/": "",
		"/" + strings.Repeat("a", len(s.guard.token)) + "/": "", strings.ToUpper(token) + "/": "",
		"/" + token + "/": "", "/." + token + "/": "", "/x/.." + token + "/": "", "/%2e" + token + "/": "",
		token + "/../etc/passwd": "", token + "//etc/passwd": "", token + "/a/../../etc": "", token + "/a/%2e%2e/x": "",
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, http.NoBody)
		r.Header.Set("Origin", friend)
		w := httptest.NewRecorder()
		s.guard.ServeHTTP(w, r)
		switch {
		case want == "redirect":
			if to := w.Header().Get("Location"); w.Code != http.StatusPermanentRedirect || to != token+"/" {
				t.Errorf("%s: got %d to %q, want a redirect to the token's path", path, w.Code, to)
			}
		case want != "":
			if w.Code != http.StatusOK || w.Body.String() != want {
				t.Errorf("%s: got %d %q, want %q", path, w.Code, w.Body, want)
			}
		case w.Code != http.StatusNotFound || strings.Contains(w.Body.String(), s.guard.token):
			t.Errorf("%s: got %d %q, want 404 without the token", path, w.Code, w.Body)
		}
		// Other origins do not even learn whether the path exists.
		if shared := w.Header().Get("Access-Control-Allow-Origin"); shared != "" && !strings.HasPrefix(path, token) {
			t.Errorf("%s: got it shared with %s, want it not shared", path, shared)
		}
	}
}

// With DNS rebinding, a page of another site reaches the server under that site's
// name.
func TestHost(t *testing.T) {
	s := listen(t, Options{Handler: echo, Host: "localhost"})
	defer s.Close()
	s.guard.options.Host = "our.example"
	for host, want := range map[string]int{
		"localhost": 200, "localhost:4000": 200, "LocalHost:1": 200, "127.0.0.1": 200, "127.0.0.1:4000": 200,
		"[::1]": 200, "[::1]:4000": 200, "10.1.2.3:80": 200, "our.example:80": 200,
		"": 403, "evil.example": 403, "evil.example:4000": 403, "localhost.evil.example": 403,
		"127.0.0.1.evil.example:80": 403, "127.0.0.1@evil.example": 403, "0x7f.1": 403, "evil": 403, "our.example.evil": 403,
	} {
		r := httptest.NewRequest(http.MethodGet, s.URL(), http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		s.guard.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: got %d, want %d", host, w.Code, want)
		}
	}
}

// At most one other origin is allowed.
func TestOrigin(t *testing.T) {
	for _, allowed := range []string{"", friend} {
		s := listen(t, Options{Handler: echo, Origin: allowed})
		t.Cleanup(func() { s.Close() })
		for origin, want := range map[string]int{
			"": 200, "http://127.0.0.1:4000": 200,
			"https://127.0.0.1:4000": 403, "http://localhost:1": 403, "null": 403, "https://evil.example": 403,
			friend + ".evil.example": 403, "http://friend.example": 403,
			friend: map[string]int{"": 403, friend: 200}[allowed],
		} {
			r := httptest.NewRequest(http.MethodGet, s.URL(), http.NoBody)
			r.Host = "127.0.0.1:4000"
			if origin != "" {
				r.Header.Set("Origin", origin)
			}
			w := httptest.NewRecorder()
			s.guard.ServeHTTP(w, r)
			shared := w.Header().Get("Access-Control-Allow-Origin")
			if isFriend := origin == friend && allowed == friend; w.Code != want || (shared == friend) != isFriend || (shared != "") != isFriend {
				t.Errorf("%q allowed, origin %q: got %d, want %d, shared with %q", allowed, origin, w.Code, want, shared)
			}
		}
	}
}

func TestPreflight(t *testing.T) {
	s := listen(t, Options{Handler: echo, Origin: friend})
	defer s.Close()
	r := httptest.NewRequest(http.MethodOptions, s.URL()+"x", http.NoBody)
	for key, value := range map[string]string{
		"Origin": friend, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type",
		"Access-Control-Request-Private-Network": "true",
	} {
		r.Header.Set(key, value)
	}
	w := httptest.NewRecorder()
	s.guard.ServeHTTP(w, r)
	for key, want := range map[string]string{
		"Access-Control-Allow-Origin": friend, "Access-Control-Allow-Headers": "content-type",
		"Access-Control-Allow-Private-Network": "true", "Access-Control-Allow-Methods": "GET, POST", "Vary": "Origin",
	} {
		if got := w.Header().Get(key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	if w.Code != http.StatusNoContent || w.Body.Len() > 0 {
		t.Errorf("got %d %q, want 204 without a body", w.Code, w.Body)
	}
}

func TestHeaders(t *testing.T) {
	s := listen(t, Options{Handler: echo})
	defer s.Close()
	w := httptest.NewRecorder()
	s.guard.ServeHTTP(w, httptest.NewRequest(http.MethodGet, s.URL(), http.NoBody))
	for key, want := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
		"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
	} {
		if got := w.Header().Get(key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}
