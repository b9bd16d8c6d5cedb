package decode

import (
	"strings"
	"testing"
)

// Go fills the stacks of threads that are not known, and the rest of others, with return addresses 0.
func TestThreadcreate(t *testing.T) {
	const legacy = "threadcreate profile: total 8\n7 @ 0x0 0x0\n#\t0x0\n\n1 @ 0x4508a5 0x0 0x0\n#\t0x4508a4\tmain.start+0x4\t/x.go:3\n\n"
	p := decoded(t, []byte(legacy), Pprof)
	const want = "[unknown];[unknown] 7\n[unknown];[unknown];main.start 1\n"
	if got := fold(t, p, 0); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, name := range functions(p)[1:] {
		if strings.TrimSpace(name) == "" {
			t.Errorf("got a function with the name %q", name)
		}
	}
}
