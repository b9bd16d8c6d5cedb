package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// images are two programs with the same code at the same addresses, except that a
// function is called "alpha_works" or "beta_works", and alpha works three times as long.
type images struct{ alpha, beta string }

// buildImages builds the two files with the given names, which the processes get. If the
// names are equal, only the identity of the process distinguishes their stacks.
func buildImages(t *testing.T, alpha, beta string) images {
	t.Helper()
	return images{
		alpha: compile(t, "image.c", alpha, "-static", "-DFUNCTION=alpha_works", "-DWORK=3"),
		beta:  compile(t, "image.c", beta, "-static", "-DFUNCTION=beta_works", "-DWORK=1"),
	}
}

// programs returns the number of programs that run in turn. It is smaller on emulated
// machines, where each takes seconds.
func programs() string {
	if testenv.InVM() {
		return "40"
	}
	return "200"
}

// check profiles a command in which the two take turns. Each must have as many samples in
// its own function as its CPU time has ticks, and none in the other's. More are no error:
// in many short slices, the time taken by interrupts and a hypervisor adds up.
func (i images) check(t *testing.T, argv ...string) {
	t.Helper()
	const frequency = 4999
	out := filepath.Join(t.TempDir(), "out.folded")
	r := fulgur(t, append([]string{"profile", "-e", "cpu-clock", "-F", strconv.Itoa(frequency), "-o", out, "--"}, argv...)...)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	used, slices := map[string]time.Duration{}, map[string]int{}
	for line := range strings.Lines(r.stdout) {
		var function string
		var ns time.Duration
		var switches int
		if _, err := fmt.Sscan(line, &function, &ns, &switches); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		used[function] += ns
		slices[function] += switches + 1
	}
	samples := map[string]int{}
	for stack, n := range readFolded(t, out) {
		comm, frames, _ := strings.Cut(stack, ";")
		inAlpha, inBeta := strings.Contains(frames, "alpha_works"), strings.Contains(frames, "beta_works")
		if inAlpha {
			samples["alpha_works"] += n
		}
		if inBeta {
			samples["beta_works"] += n
		}
		if inAlpha && comm != filepath.Base(i.alpha) || inBeta && comm != filepath.Base(i.beta) || inAlpha && inBeta {
			t.Errorf("got names of another program: %s %d", stack, n)
		}
	}
	for _, function := range []string{"alpha_works", "beta_works"} {
		n, skipped := samples[function], skipped(r.stderr)
		want := ticks(used[function], frequency, slices[function], skipped)
		t.Logf("%s: %d samples and %d skipped, %v in %d slices are %s", function, n, skipped, used[function], slices[function], want)
		if n < max(want.Low, 1) {
			t.Errorf("got %d samples in %s, want at least %d", n, function, max(want.Low, 1))
		}
	}
}

// A process that repeatedly executes another program, with different names at the same
// addresses, never has names of the previous program.
func TestExecNeverMixesStacks(t *testing.T) {
	testenv.Root(t)
	for _, names := range [][2]string{{"alpha", "beta"}, {"same", "same"}} {
		t.Run(strings.Join(names[:], " and "), func(t *testing.T) {
			i := buildImages(t, names[0], names[1])
			i.check(t, i.alpha, programs(), i.beta)
		})
	}
}

// Successive processes with the same PID are distinguished.
func TestPIDReuseNeverMixesStacks(t *testing.T) {
	testenv.Root(t)
	reuse := compile(t, "reuse.c", "reuse")
	for _, names := range [][2]string{{"alpha", "beta"}, {"same", "same"}} {
		t.Run(strings.Join(names[:], " and "), func(t *testing.T) {
			i := buildImages(t, names[0], names[1])
			i.check(t, reuse, programs(), i.alpha, i.beta)
		})
	}
}

// Libraries that replace each other at the same addresses keep their own samples.
func TestRemapNeverMixesStacks(t *testing.T) {
	testenv.Root(t)
	build := func(name string) string {
		return compile(t, "library.c", "lib"+name+".so", "-shared", "-fPIC", "-DFUNCTION="+name+"_works")
	}
	alpha, beta := build("alpha"), build("beta")
	const frequency = 1999
	r := fulgur(t, "profile", "-e", "cpu-clock", "-F", strconv.Itoa(frequency), "-f", "--", compile(t, "plugins.c", "plugins", "-ldl"), "2", alpha, beta)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	// The program's own lines come first: it exits before fulgur writes.
	used, slices := map[string]time.Duration{}, map[string]int{}
	places := map[string]bool{}
	lines := strings.SplitAfter(r.stdout, "\n")
	for i, name := range []string{"alpha", "beta", "alpha", "beta"} {
		var place string
		var ns time.Duration
		var switches int
		if _, err := fmt.Sscan(lines[i], &place, &ns, &switches); err != nil {
			t.Fatalf("%q: %v", lines[i], err)
		}
		used[name] += ns
		slices[name] += switches + 1
		places[place] = true
	}
	if len(places) != 1 {
		testenv.Unsupported(t, "the loader gave the libraries different places: %v", places)
	}
	stacks := folded(t, strings.Join(lines[4:], ""))
	for name := range used {
		checkTicks(t, name, count(stacks, ";"+name+"_works"), used[name], frequency, slices[name], r.stderr)
	}
}
