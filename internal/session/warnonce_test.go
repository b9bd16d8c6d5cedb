package session

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// A warning is told once, and of many no more than a few.
func TestTeller(t *testing.T) {
	var out bytes.Buffer
	tell := warnOnce{options: &Options{Stderr: &out}}
	tell.tell([]string{"a", "b", "a"})
	tell.tell([]string{"b", "c"})
	if want := "fulgur: a\nfulgur: b\nfulgur: c\n"; out.String() != want {
		t.Errorf("tells\n%s\nwant\n%s", &out, want)
	}
	for i := range 100 {
		tell.tell([]string{fmt.Sprint("line ", i)})
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if last := lines[len(lines)-1]; len(lines) != maxTold+1 || !strings.Contains(last, "left out") || strings.Count(out.String(), "left out") != 1 {
		t.Errorf("tells %d lines:\n%s", len(lines), &out)
	}
	out.Reset()
	quiet := warnOnce{options: &Options{Stderr: &out, Quiet: true}}
	if quiet.tell([]string{"a"}); out.Len() > 0 {
		t.Errorf("tells %s", &out)
	}
}
