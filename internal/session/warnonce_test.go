package session

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// Each warning is printed once, and only a limited number of them.
func TestWarnOnce(t *testing.T) {
	var out bytes.Buffer
	warnings := warnOnce{options: &Options{Stderr: &out}}
	warnings.warn([]string{"a", "b", "a"})
	warnings.warn([]string{"b", "c"})
	if want := "fulgur: a\nfulgur: b\nfulgur: c\n"; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
	for i := range 100 {
		warnings.warn([]string{fmt.Sprint("line ", i)})
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if last := lines[len(lines)-1]; len(lines) != maxWarnings+1 || !strings.Contains(last, "more warnings") || strings.Count(out.String(), "more warnings") != 1 {
		t.Errorf("got %d lines, want the limit and one more:\n%s", len(lines), &out)
	}
	out.Reset()
	quiet := warnOnce{options: &Options{Stderr: &out, Quiet: true}}
	if quiet.warn([]string{"a"}); out.Len() > 0 {
		t.Errorf("got %s, want nothing", &out)
	}
}
