package live

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
)

func get(p *Page, method, path string) *http.Response {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
	return w.Result()
}

func add(t *testing.T, p *Page, windows int) {
	t.Helper()
	for range windows {
		if err := p.Add(encodetest.Typical(), flame.Options{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPaths(t *testing.T) {
	p := New()
	add(t, p, keep+2)
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/", 200},
		{"HEAD", "/", 200},
		{"POST", "/", 405},
		{"GET", "/window/3", 200},
		{"GET", "/window/22", 200},
		{"GET", "/window/2", 404}, // no longer kept
		{"GET", "/window/23", 404},
		{"GET", "/window/", 404},
		{"GET", "/window/x", 404},
		{"GET", "/window/3/", 404},
		{"GET", "/etc/passwd", 404},
	} {
		r := get(p, c.method, c.path)
		if r.StatusCode != c.want {
			t.Errorf("%s %s: got %d, want %d", c.method, c.path, r.StatusCode, c.want)
		}
		if policy := r.Header.Get("Content-Security-Policy"); r.StatusCode == http.StatusOK && !strings.Contains(policy, "frame-ancestors") {
			t.Errorf("%s %s: got policy %q, want frame-ancestors in it", c.method, c.path, policy)
		}
	}
	if len(p.pages) != keep {
		t.Errorf("got %d pages, want %d", len(p.pages), keep)
	}
}

// The policy allows the page's own script and style.
func TestPolicy(t *testing.T) {
	r := get(New(), "GET", "/")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	policy := r.Header.Get("Content-Security-Policy")
	for _, tag := range []string{"script", "style"} {
		_, text, _ := strings.Cut(string(body), "<"+tag+">")
		text, _, _ = strings.Cut(text, "</"+tag+">")
		if text == "" || !strings.Contains(policy, sourceHash(text)) {
			t.Errorf("%s: not allowed by %s", tag, policy)
		}
	}
	if strings.Contains(string(body), "{{") {
		t.Error("got unfilled placeholders in the page")
	}
}

// events reads a stream of events, one string per event.
type events struct {
	*bufio.Scanner
}

func (e events) next(t *testing.T) string {
	t.Helper()
	var lines []string
	for e.Scan() && e.Text() != "" {
		lines = append(lines, e.Text())
	}
	return strings.Join(lines, "|")
}

func TestEvents(t *testing.T) {
	p := New()
	server := httptest.NewServer(p)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("got type %q, want text/event-stream", got)
	}
	e := events{bufio.NewScanner(response.Body)}
	want := func(want string) {
		t.Helper()
		if got := e.next(t); got != want {
			t.Errorf("got event %q, want %q", got, want)
		}
	}
	want(`data: {"first":0,"last":0}`)
	add(t, p, 1)
	want(`data: {"first":1,"last":1}`)
	// A slow reader gets the newest window.
	add(t, p, keep+1)
	for e.next(t) != `data: {"first":3,"last":22}` {
		if e.Err() != nil {
			t.Fatal("got no event for the newest window")
		}
	}
	p.End()
	want(`event: end|data: {}`)
	if e.Scan() {
		t.Errorf("got %q after the end", e.Text())
	}
}

func TestAddFails(t *testing.T) {
	p := New()
	if err := p.Add(&profile.Profile{}, flame.Options{}); err == nil {
		t.Error("got no error for a profile without values")
	} else if errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
