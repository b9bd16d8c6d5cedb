package remote

import (
	"errors"
	"strings"
	"testing"

	"fulgur/internal/message/usage"
)

func TestParseSSH(t *testing.T) {
	for url, want := range map[string]string{
		"ssh://web1":                "web1; ssh -- web1",
		"ssh://web1/":               "web1; ssh -- web1",
		"ssh://root@web-1.example":  "root@web-1.example; ssh -l root -- web-1.example",
		"ssh://web1:2222":           "web1-2222; ssh -p 2222 -- web1",
		"ssh://a.b@c@web1:22":       "a.b@c@web1-22; ssh -l a.b@c -p 22 -- web1",
		"ssh://[::1]":               "--1; ssh -- ::1",
		"ssh://me@[fe80::1%eth0]:7": "me@fe80--1%eth0-7; ssh -l me -p 7 -- fe80::1%eth0",
	} {
		h, err := ParseSSH(url)
		if got := h.Label() + "; " + strings.Join(h.arguments(), " "); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", url, got, err, want)
		}
	}
	for _, url := range []string{
		"", "web1", "ssh://", "http://web1", "ssh:web1", "ssh://-oProxyCommand=x", "ssh://me@-web1", "ssh://-me@web1", "ssh://web1 x",
		"ssh://web1\n", "ssh://web\x1b1", "ssh://web1:", "ssh://web1:0", "ssh://web1:70000", "ssh://web1:x", "ssh://a/b", "ssh://$(x)",
		"ssh://`x`", "ssh://me@", "ssh://@web1", "ssh://[::1", "ssh://[x]", "ssh://::1", "ssh://;x", "ssh://..%2f",
	} {
		if h, err := ParseSSH(url); !errors.Is(err, usage.Err) {
			t.Errorf("%q: got %+v, %v, want a usage error", url, h, err)
		}
	}
}
