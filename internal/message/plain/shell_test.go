package plain_test

import (
	"os/exec"
	"testing"

	"fulgur/internal/message/plain"
	"fulgur/internal/testenv"
)

// A shell parses a quoted word as the original.
func TestWord(t *testing.T) {
	bash := testenv.Tool(t, "bash")
	for _, word := range []string{"plain-1.2/x", "", "a b", "it's", `$HOME "x" \ !`, "/usr/bin/fulgur", "/a b/fulgur", "tab\tnew\nline'", "\x1b[31m\xff"} {
		out, err := exec.Command(bash, "-c", "printf %s "+plain.Word(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q: quoted as %s, parsed as %q: %v", word, plain.Word(word), out, err)
		}
	}
}

func TestOr(t *testing.T) {
	for _, c := range []struct {
		all  []string
		want string
	}{{nil, ""}, {[]string{"a"}, "a"}, {[]string{"a", "b"}, "a or b"}, {[]string{"a", "b", "c"}, "a, b or c"}} {
		if got := plain.Or(c.all); got != c.want {
			t.Errorf("%q: got %q, want %q", c.all, got, c.want)
		}
	}
}
