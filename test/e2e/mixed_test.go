package e2e

import (
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// A process with two language runtimes, which call each other, has the frames of both, in the order
// of the calls.
func TestSeveralRuntimes(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	if runtime.GOARCH != "amd64" {
		testenv.Unsupported(t, "fulgur reads Ruby's frames only on amd64")
	}
	library, err := exec.Command(testenv.Tool(t, "ruby"), "-e", `puts File.read("/proc/self/maps")[/\S*libruby\S*/]`).Output()
	if err != nil {
		t.Fatal(err)
	}
	if len(library) < 2 {
		testenv.Unsupported(t, "this Ruby is not in a library")
	}
	account := map[string][]string{}
	cmd := exec.Command(testenv.Tool(t, "python3"), "testdata/mixed.py", strings.TrimSpace(string(library)))
	startAccounting(t, cmd, &account)
	samples, wrong, right := 0, 0, map[string]int{}
	sampleProcess(t, cmd, func(text string, s streamed) {
		if s.TID != cmd.Process.Pid {
			return // a thread of a runtime
		}
		var chain []string
		for i, f := range s.User {
			if f.Module != rubyModule && f.Module != pythonModule || strings.HasPrefix(f.File, "<internal:") {
				continue
			}
			if i > 0 && f.Module != s.User[i-1].Module && (s.User[i-1].Module == rubyModule || s.User[i-1].Module == pythonModule) {
				chain = append(chain, "directly") // native code is between the languages
			}
			name := strings.TrimPrefix(f.Function, "block in ")
			chain = append(chain, name[strings.LastIndexAny(name, "#.")+1:]) // later versions name the class
		}
		samples++
		leaf := ""
		if len(chain) > 0 {
			leaf = chain[0]
		}
		want, ok := account[leaf]
		switch {
		case !ok && len(chain) > 0 && chain[len(chain)-1] == "<module>": // on its way between the loops
		case !ok || !slices.Equal(chain[1:], want):
			if wrong++; wrong <= 20 {
				t.Logf("got functions %q in %s", chain, text)
			}
		default:
			right[leaf]++
		}
	})
	t.Logf("%d samples, right: %v, wrong: %d", samples, right, wrong)
	// An interpreter is between two functions in a few of 1000 samples.
	if most := stat.Binomial(samples, 0.01); samples < 100 || wrong > most.High {
		t.Errorf("%d of %d stacks are wrong, want at most %d, and at least 100 stacks", wrong, samples, most.High)
	}
	for leaf := range account {
		if right[leaf] < 10 {
			t.Errorf("got %d right stacks of %s, want at least 10", right[leaf], leaf)
		}
	}
}
