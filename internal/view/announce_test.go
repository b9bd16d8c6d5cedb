package view

import (
	"net"
	"os"
	"strings"
	"testing"

	"fulgur/internal/decode"
)

func environment(vars map[string]string) func(string) string {
	return func(key string) string { return vars[key] }
}

func TestReachable(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1": "127.0.0.1:4000", "10.1.2.3": "10.1.2.3:4000", "::1": "[::1]:4000",
		"0.0.0.0": "127.0.0.1:4000", "::": "127.0.0.1:4000",
	} {
		if got := reachable(&net.TCPAddr{IP: net.ParseIP(listen), Port: 4000}); got != want {
			t.Errorf("listening on %s: %s, want %s", listen, got, want)
		}
	}
}

// The page that shows a profile best is the first.
func TestLinks(t *testing.T) {
	p := build(t)
	for format, want := range map[decode.Format]string{
		decode.Firefox: "Firefox Profiler", decode.Pprof: "pprof", decode.Folded: "Flame graph, source and assembly",
	} {
		s := newServer(Options{Input: p.input(t, format)}, nil, token)
		links := s.links(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4000})
		if links[0].what != want {
			t.Errorf("%s: first is %s, want %s", format, links[0].what, want)
		}
		for _, l := range links {
			if !strings.Contains(l.url, token) {
				t.Errorf("%s has no token: %s", l.what, l.url)
			}
		}
	}
}

func TestWay(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		env  map[string]string
		url  string
		want string
	}{
		{nil, "http://127.0.0.1:4000/t/", "ssh -L 4000:127.0.0.1:4000 " + name + "\n"},
		{map[string]string{"USER": "root", "SUDO_USER": "me"}, "http://127.0.0.1:4000/t/", "ssh -L 4000:127.0.0.1:4000 me@" + name + "\n"},
		{map[string]string{"USER": "me", "SSH_CONNECTION": "10.0.0.9 40000 10.0.0.1 22"}, "http://[::1]:4000/t/", "ssh -L 4000:[::1]:4000 me@10.0.0.1\n"},
		{nil, "http://10.0.0.1:4000/t/", ""},
	} {
		var b strings.Builder
		tellWay(&b, test.url, environment(test.env))
		if !strings.Contains(b.String(), test.want) || (test.want == "") != (b.Len() == 0) {
			t.Errorf("%v, %s: %q, want %q", test.env, test.url, b.String(), test.want)
		}
	}
}

// No browser is started without a display, or as root.
func TestBrowser(t *testing.T) {
	if got := browser(environment(nil)); got != "" {
		t.Errorf("without a display: %s", got)
	}
	if got := browser(environment(map[string]string{"DISPLAY": ":0"})); got != "" && os.Geteuid() == 0 {
		t.Errorf("as root: %s", got)
	}
}
