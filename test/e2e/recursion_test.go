package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// Stacks have the time of recursive calls once, even if processes have ended in calls of the
// function, or calls were left without a return.
func TestLatencyRecursion(t *testing.T) {
	testenv.SlowInVM(t)
	testenv.Root(t)
	program := compile(t, "recursion.c", "recursion")
	for name, children := range map[string]string{"quit": "1500", "parse": "0"} {
		t.Run(name, func(t *testing.T) {
			if name == "quit" {
				testenv.Long(t)
			}
			out := filepath.Join(t.TempDir(), "out.folded")
			r := fulgur(t, "latency", "-o", out, "-e", "uprobe:"+program+":"+name, "--pending-entries", "1024", "--", program, children)
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			own := numbers(t, r.stdout)
			got := sum(readFolded(t, out)) * 1000
			if strings.Contains(r.stderr, "not tracked") {
				return // the kernel freed ended tasks late, and the summary says so
			}
			if most := own[name] + own[name+"_more"]; got > most || got < own[name]/2 {
				t.Errorf("got %d ns in stacks, want about %d, at most %d\n%s", got, own[name], most, r.stderr)
			}
		})
	}
}
