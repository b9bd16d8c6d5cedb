package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// paths are the call paths in testdata/paths.c, beginning with main.
var paths = []string{
	"main;step_sort;step_compare;step_leaf",
	"main;step_search;step_probe;step_leaf",
	"main;" + strings.Repeat("step_even;step_odd;", 10) + "step_even;step_leaf",
	"main;step_alloca;step_leaf",
}

// onPaths returns the functions of testdata/paths.c in a stack, outermost first.
func onPaths(functions []string) string {
	functions = slices.DeleteFunc(functions, func(f string) bool { return f != "main" && !strings.HasPrefix(f, "step_") })
	return strings.Join(functions, ";")
}

// known returns the number of samples on a path or on a beginning of one.
func known(stacks map[string]int) (right int) {
	for stack, n := range stacks {
		if stack != "" && slices.ContainsFunc(paths, func(path string) bool { return strings.HasPrefix(path+";", stack+";") }) {
			right += n
		}
	}
	return right
}

// perfPaths returns the samples of perf.data by their functions of testdata/paths.c.
func perfPaths(t *testing.T, perf, data string) map[string]int {
	t.Helper()
	script, err := exec.Command(perf, "script", "--no-inline", "-i", data, "-F", "ip,sym").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for sample := range strings.SplitSeq(strings.TrimSpace(string(script)), "\n\n") {
		var functions []string
		for line := range strings.Lines(sample) {
			if fields := strings.Fields(line); len(fields) > 1 {
				functions = append(functions, fields[1])
			}
		}
		slices.Reverse(functions)
		found[onPaths(functions)]++
	}
	return found
}

// total is the number of samples.
func total(stacks map[string]int) (sum int) {
	for _, n := range stacks {
		sum += n
	}
	return sum
}

// A program with known paths has stacks on these paths only. They have the same shares as
// in perf's profile of the same run by copies of the stack, although the two sample at
// different moments.
func TestStacksAsPerf(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	perf := testenv.Tool(t, "perf")
	program := compile(t, "paths.c", "paths", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls")
	data := filepath.Join(t.TempDir(), "perf.data")
	ours := map[string]int{}
	for stack, n := range profile(t, []string{"-e", "cpu-clock:u", "-F", "499"},
		perf, "record", "-q", "-e", "cpu-clock:u", "-F", "499", "--call-graph", "dwarf,65528", "-o", data, program, "800") {
		// The time to load tables depends on the load of the machine.
		if frames := strings.Split(stack, ";"); frames[0] == "paths" && !slices.Contains(frames, notReady) {
			ours[onPaths(frames[1:])] += n
		}
	}
	theirs := perfPaths(t, perf, data)
	all, known := total(ours), known(ours)
	t.Logf("fulgur: %d samples, %d on the program's paths; perf: %d", all, known, total(theirs))
	if all == 0 || total(theirs) == 0 {
		t.Fatal("got no samples of fulgur or of perf")
	}
	if known < stat.Binomial(all, 0.98).Low {
		t.Errorf("%d of %d samples are on a path of the program, want nearly all: %v", known, all, ours)
	}
	// Each sample of a stack is equally likely to be fulgur's or perf's.
	ratio := float64(all) / float64(total(theirs))
	for _, path := range paths {
		stat.Split(ours[path]+theirs[path], ratio).Check(t, "of fulgur's and perf's samples in "+path+" fulgur's", ours[path])
	}
}
