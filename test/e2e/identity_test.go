package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

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
// its own function as its work has ticks, and none in the other's.
func (i images) check(t *testing.T, argv ...string) {
	t.Helper()
	const frequency = 4999
	out := filepath.Join(t.TempDir(), "out.folded")
	r := fulgur(t, append([]string{"profile", "-e", "cpu-clock", "-F", strconv.Itoa(frequency), "-o", out, "--"}, argv...)...)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	works := map[string]work{}
	for line := range strings.Lines(r.stdout) {
		function, report, _ := strings.Cut(line, " ")
		w := parseWork(t, report)
		w.add(works[function])
		works[function] = w
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
		checkTicks(t, function, samples[function], works[function], frequency, r.stderr)
	}
}

// A process that repeatedly executes another program, with different names at the same
// addresses, never has names of the previous program.
func TestExecNeverMixesStacks(t *testing.T) {
	testenv.OneKernel(t)
	testenv.Root(t)
	for _, names := range [][2]string{{"alpha", "beta"}, {"same", "same"}} {
		t.Run(strings.Join(names[:], " and "), func(t *testing.T) {
			if names[0] != names[1] {
				testenv.Long(t) // commands with equal names are the harder case
			}
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
			if names[0] != names[1] {
				testenv.Long(t) // commands with equal names are the harder case
			}
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
	dir := t.TempDir()
	profile, log := filepath.Join(dir, "out.folded"), filepath.Join(dir, "log")
	cmd := command(t, "profile", "-e", "cpu-clock", "-F", strconv.Itoa(frequency), "-o", profile, "--log", log, "--", compile(t, "plugins.c", "plugins", "-ldl"), "2", alpha, beta)
	works := map[string]work{}
	for i, w := range replacing(t, cmd, log, 4) {
		name := []string{"alpha", "beta"}[i%2]
		w.add(works[name])
		works[name] = w
	}
	written, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	stacks := folded(t, string(written))
	for name, w := range works {
		checkTicks(t, name, count(stacks, ";"+name+"_works"), w, frequency, fmt.Sprint(cmd.Stderr))
	}
}

// replacing runs fulgur with a debug log, and the program plugins for some turns. Each of them
// works only once fulgur has seen that its library replaced the previous one. It returns what
// the turns used.
func replacing(t *testing.T, cmd *exec.Cmd, log string, turns int) (works []work) {
	t.Helper()
	d := newDialog(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	replaced := func() int {
		t.Helper()
		written, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Count(string(written), `msg="code replaced"`)
	}
	place := ""
	for turn := range turns {
		before := replaced()
		d.proceed(t)
		at := d.line(t)
		if turn == 0 {
			place = at
		} else if at != place {
			testenv.Unsupported(t, "the loader gave the libraries different places: %s and %s", place, at)
		}
		testenv.Await(t, func() bool { return turn == 0 || replaced() > before }, func() string {
			return fmt.Sprintf("fulgur does not see the library of turn %d", turn+1)
		})
		d.proceed(t)
		works = append(works, parseWork(t, d.line(t)))
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, cmd.Stderr)
	}
	return works
}
