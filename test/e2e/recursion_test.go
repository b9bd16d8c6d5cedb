package e2e

import (
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"fulgur/internal/testenv"
)

// Stacks have the time of recursive calls once, even if processes have ended in calls of the
// function, or calls were left without a return.
func TestLatencyRecursion(t *testing.T) {
	testenv.Root(t)
	program := compile(t, "recursion.c", "recursion")
	const pending = 1024
	for name, children := range map[string]int{"quit": 6000, "parse": 0} {
		t.Run(name, func(t *testing.T) {
			if name == "quit" {
				testenv.Long(t)
			}
			out := filepath.Join(t.TempDir(), "out.folded")
			r := fulgur(t, "latency", "-o", out, "-e", "uprobe:"+program+":"+name, "--pending-entries", strconv.Itoa(pending), "--", program, strconv.Itoa(children))
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			own, stacks := numbers(t, r.stdout), readFolded(t, out)
			got := sum(stacks) * 1000
			if m := regexp.MustCompile(`(\d+) intervals? not tracked`).FindStringSubmatch(r.stderr); m != nil {
				// The kernel may free ended tasks late, but not all of them.
				if n, err := strconv.Atoi(m[1]); err != nil || n >= children-pending {
					t.Errorf("each of %d children left a call behind\n%s", children, r.stderr)
				}
				return
			}
			// Each stack has whole microseconds.
			if least, most := own[name+"_asleep"]-1000*len(stacks), own[name]+own[name+"_more"]; got < least || got > most {
				t.Errorf("got %d ns in stacks, want %d to %d\n%s", got, least, most, r.stderr)
			}
		})
	}
}
