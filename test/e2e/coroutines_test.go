package e2e

import (
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"fulgur/internal/testenv"
)

// Calls of functions whose stacks are switched, copied or left are measured, and the program is not harmed.
func TestCoroutines(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	program := testenv.Compile(t, "coroutines", "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "testdata/coroutines.c", "-pthread", "-static")
	const rounds = 100
	for _, test := range []struct {
		name, function, ask string
		want                map[string]int // what the program says
		left                int            // of the intervals
		exact               bool           // whether their time is known
	}{
		{"separate stacks", "step", "s", map[string]int{"returned": 4 * rounds * 3}, 0, true},
		{"copied stacks", "step", "c", map[string]int{"returned": 4 * rounds * 3}, 0, false},
		{"siglongjmp", "leaves", "l", map[string]int{"returned": 2 * rounds, "left": rounds}, rounds, false},
		{"cancellation", "waits", "t", map[string]int{"left": 2 * rounds, "cleaned": rounds}, rounds, false},
		// One more call reads the next command.
		{"cancellation in the C library", "read", "t", map[string]int{"left": 2 * rounds, "cleaned": rounds}, rounds + 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			pid, ask := serve(t, program)
			out := filepath.Join(t.TempDir(), "out.folded")
			c := command(t, "latency", "-e", "uprobe:"+program+":"+test.function, "-o", out, "-p", strconv.Itoa(pid))
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			awaitSampling(t, c)
			own := ask(test.ask)
			awaitReading(t, pid)
			r := interrupt(t, c)
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			for name, want := range test.want {
				if own[name] != want {
					t.Errorf("the program says %d for %s, want %d", own[name], name, want)
				}
			}
			number := func(text string) int {
				if m := regexp.MustCompile(text).FindStringSubmatch(r.stderr); m != nil {
					return mustNumber(t, m[1])
				}
				return 0
			}
			// The calls of coroutines can be distinguished, or are said to be in doubt.
			doubtful := number(`(\d+) intervals? in doubt`)
			if got, want := number(`count (\d+), average`)+doubtful, own["returned"]; got != want {
				t.Errorf("got %d intervals, want %d", got, want)
			}
			if test.name != "copied stacks" && doubtful > 0 {
				t.Errorf("%d intervals are in doubt, want none", doubtful)
			}
			if got := number(`(\d+) intervals? began but did not end`); got != test.left+doubtful {
				t.Errorf("got %d intervals without an end, want %d", got, test.left+doubtful)
			}
			// Recursive calls on the same stack do not count twice. Folded stacks have whole microseconds.
			stacks := readFolded(t, out)
			got, rounding := 1000*sum(stacks), 1000*len(stacks)
			if test.exact && (got < own["inner"]-rounding || got > own["outer"]+rounding) {
				t.Errorf("got %d ns, want %d to %d", got, own["inner"], own["outer"])
			}
			if own := ask("l"); own["returned"] != 2*rounds {
				t.Errorf("afterwards, the program says %d calls, want %d", own["returned"], 2*rounds)
			}
		})
	}
}
