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

// Go's legacy profiles name their functions in comments.
func TestLegacyNames(t *testing.T) {
	const text = "goroutine profile: total 3\n2 @ 0x1001 0x2001\n#\t0x1000\tmain.inner+0x10\t/a/b c.go:7\n#\t0x1000\tmain.(*T).outer[...]+0x10\t/a/b.go:9\n#\t0x2000\tmain.main+0x20\t/a/main.go:3\n\n1 @ 0x2001\n#\t0x2000\tmain.main+0x20\t/a/main.go:3\n"
	p := decoded(t, []byte(text), Pprof)
	const want = "main.main 1\nmain.main;main.(*T).outer[...];main.inner_[i] 2\n"
	if got := fold(t, p, 0); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
