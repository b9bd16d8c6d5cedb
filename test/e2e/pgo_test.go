package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// Go's compiler takes a profile as advice (go.dev/doc/pgo): with it, it inlines
// calls that it otherwise leaves alone.
func TestProfileGuidesGoBuild(t *testing.T) {
	testenv.Root(t)
	goTool := testenv.Tool(t, "go")
	plain, before := buildGuided(t, goTool, "off")
	profile := filepath.Join(t.TempDir(), "cpu.pb.gz")
	if r := fulgur(t, "profile", "-F", "997", "-o", profile, "--", plain); r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	guided, after := buildGuided(t, goTool, profile)
	for _, decision := range []string{
		"PGO devirtualizing interface call m.mix to (*adder).mix",
		"inlining call to (*adder).mix",
		"inlining call to scramble",
	} {
		if strings.Contains(before, decision) {
			t.Errorf("%q without a profile:\n%s", decision, before)
		}
		if !strings.Contains(after, decision) {
			t.Errorf("no %q with the profile:\n%s", decision, after)
		}
	}
	slow, fast := leastCPU(t, plain), leastCPU(t, guided)
	t.Logf("without a profile %v, with it %v: %.2f times as fast", slow, fast, slow.Seconds()/fast.Seconds())
}

// buildGuided builds testdata/pgo with a profile, or "off", and returns the
// program and the compiler's decisions.
func buildGuided(t *testing.T, goTool, profile string) (program, decisions string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "pgoload")
	build := exec.Command(goTool, "build", "-pgo="+profile, "-gcflags=-m", "-o", program, ".")
	build.Dir = filepath.Join("testdata", "pgo")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return program, string(out)
}

// leastCPU returns how long a program computes, the least of three runs.
func leastCPU(t *testing.T, program string) time.Duration {
	t.Helper()
	var least time.Duration
	for range 3 {
		run := exec.Command(program)
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", program, err, out)
		}
		if used := run.ProcessState.UserTime(); least == 0 || used < least {
			least = used
		}
	}
	return least
}
