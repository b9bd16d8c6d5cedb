package view

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"fulgur/internal/profile/decode"
)

func environment(vars map[string]string) func(string) string {
	return func(key string) string { return vars[key] }
}

// The first page is the best for the profile's format.
func TestLinks(t *testing.T) {
	p := build(t)
	for format, want := range map[decode.Format]string{
		decode.Firefox: "Firefox Profiler", decode.Pprof: "pprof", decode.Folded: "Flame graph, source and assembly",
	} {
		const base = "http://127.0.0.1:4000/token/"
		links := links(base, "", p.input(t, format))
		if links[0].what != want {
			t.Errorf("%s: got %s first, want %s", format, links[0].what, want)
		}
		for _, l := range links {
			if !strings.HasPrefix(l.url, base) && !strings.Contains(l.url, url.QueryEscape(base)) {
				t.Errorf("%s: got no token in %s", l.what, l.url)
			}
		}
	}
}

// Filters are in the address of the flame graph, which is then the first page.
func TestLinksWithFilters(t *testing.T) {
	links := links("http://127.0.0.1/token/", "filter=focus%3Aa", build(t).input(t, decode.Firefox))
	if links[0].url != "http://127.0.0.1/token/#filter=focus%3Aa" {
		t.Errorf("got %+v, want the flame graph first", links)
	}
}

// No browser is started without a display, or as root.
func TestBrowser(t *testing.T) {
	if got := browser(environment(nil)); got != "" {
		t.Errorf("without a display: got %s, want none", got)
	}
	if got := browser(environment(map[string]string{"DISPLAY": ":0"})); got != "" && os.Geteuid() == 0 {
		t.Errorf("as root: got %s", got)
	}
}
