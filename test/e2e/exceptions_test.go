package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// Exceptions leave functions of a C++ program whose calls are measured, and reach the program. Calls
// that return count, and the others are reported.
func TestExceptions(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	program := testenv.Compile(t, "throws", "g++", "-O2", "-Wall", "-Wextra", "-Werror", "testdata/throws.cc")
	const rounds, depth = 300, 7
	run := func(t *testing.T, args ...string) (got, left int, own map[string]int) {
		t.Helper()
		pid, ask := serve(t, program)
		out := filepath.Join(t.TempDir(), "out.folded")
		c := command(t, append(args, "-o", out, "-p", strconv.Itoa(pid))...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, c)
		own = ask("r")
		r := interrupt(t, c)
		if r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		if own["calls"] != 2*rounds || own["depth"] != depth*rounds {
			t.Errorf("the program says %v, want %d and %d calls", own, 2*rounds, depth*rounds)
		}
		if args[0] == "count" {
			return sum(readFolded(t, out)), 0, own
		}
		if m := regexp.MustCompile(`count (\d+), average`).FindStringSubmatch(r.stderr); m != nil {
			got = mustNumber(t, m[1])
		}
		if m := regexp.MustCompile(`(\d+) intervals began but did not end`).FindStringSubmatch(r.stderr); m != nil {
			left = mustNumber(t, m[1])
		}
		return got, left, own
	}
	for _, test := range []struct {
		function       string
		returned, left int
	}{
		{"middle", 200, 100},
		{"last", 200, 100},
		{"recurse", 5 * rounds, 2 * rounds},
	} {
		t.Run(test.function, func(t *testing.T) {
			got, left, _ := run(t, "latency", "-e", "uprobe:"+program+":"+test.function)
			// Calls that replace the last ones that were left have not ended, either.
			if got != test.returned || left != test.left {
				t.Errorf("got %d intervals and %d without an end, want %d and %d", got, left, test.returned, test.left)
			}
		})
	}
	t.Run("count", func(t *testing.T) {
		testenv.SlowInVM(t)
		got, _, own := run(t, "count", "-e", "uretprobe:"+program+":middle")
		if got != own["returned"] {
			t.Errorf("got %d returns, want %d", got, own["returned"])
		}
	})
	t.Run("results", func(t *testing.T) {
		testenv.SlowInVM(t)
		got, _, own := run(t, "count", "--weight", "retval", "-e", "uretprobe:"+program+":middle")
		if got != own["sum"] {
			t.Errorf("got the sum %d of the results, want %d", got, own["sum"])
		}
	})
	t.Run("refused", func(t *testing.T) {
		r := fulgur(t, "count", "-e", "uretprobe:"+program+":last", "1")
		if want := "jump to another function"; r.code != 2 || !strings.Contains(r.stderr, want) {
			t.Errorf("got code %d and %q, want 2 and %q", r.code, r.stderr, want)
		}
		r = fulgur(t, "count", "-e", "uretprobe:"+program+":la*", "1")
		if want := "jump to another function"; r.code != 2 || !strings.Contains(r.stderr, want) {
			t.Errorf("pattern: got code %d and %q, want 2 and %q", r.code, r.stderr, want)
		}
	})
}

func mustNumber(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(fmt.Errorf("%q: %w", text, err))
	}
	return n
}
