package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMirrorRead(t *testing.T) {
	m := mirror{codename: "bookworm"}
	source := m.read(`bookworm main http://example.org/other /etc/apt/sources.list.d/other.list:1
bookworm main http://example.org/debian/ /etc/apt/sources.list:1
bookworm contrib http://example.org/contrib /etc/apt/sources.list:1
bookworm-updates main http://example.org/debian /etc/apt/sources.list:2
bookworm-security main http://example.org/debian-security /etc/apt/sources.list:3
stable main http://example.org/third /etc/apt/sources.list.d/third.list:1
`)
	want := mirror{codename: "bookworm", main: "http://example.org/debian", security: "http://example.org/debian-security"}
	if diff := cmp.Diff(want, m, cmp.AllowUnexported(mirror{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if source != "/etc/apt/sources.list" {
		t.Errorf("source = %s, want /etc/apt/sources.list", source)
	}
	sources := m.sources([]string{"sid", "bookworm-security"})
	for _, part := range []string{
		"URIs: http://example.org/debian\nSuites: sid\n",
		"URIs: http://example.org/debian-security\nSuites: bookworm-security\n",
	} {
		if !strings.Contains(sources, part) {
			t.Errorf("no %q in\n%s", part, sources)
		}
	}
}

func TestSignedBy(t *testing.T) {
	for source, want := range map[string]string{
		"Types: deb\nSigned-By: /usr/share/keyrings/a.gpg\n":           "/usr/share/keyrings/a.gpg",
		"deb [arch=amd64 signed-by=/a/b.asc] http://example.org x y\n": "/a/b.asc",
		"Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n":          "",
		"deb http://example.org bookworm main\n":                       "",
	} {
		if got := signedBy(source); got != want {
			t.Errorf("signedBy(%q) = %q, want %q", source, got, want)
		}
	}
}

func TestCodename(t *testing.T) {
	if got := codename("ID=debian\nVERSION_CODENAME=\"bookworm\"\n"); got != "bookworm" {
		t.Errorf("codename = %q, want bookworm", got)
	}
	if got := codename("ID=arch\n"); got != "" {
		t.Errorf("codename = %q, want none", got)
	}
}
