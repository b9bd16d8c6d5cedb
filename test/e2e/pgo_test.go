package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// Go's compiler uses the profile (go.dev/doc/pgo): it inlines calls that it does not
// inline otherwise.
func TestProfileGuidesGoBuild(t *testing.T) {
	parallel(t)
	testenv.Long(t) // builds the standard library twice
	testenv.Root(t)
	goTool := testenv.Tool(t, "go")
	plain, before := buildGuided(t, goTool, "off")
	profile := filepath.Join(t.TempDir(), "cpu.pb.gz")
	if r := fulgur(t, "profile", "-F", "997", "-o", profile, "--", plain); r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	_, after := buildGuided(t, goTool, profile)
	for _, decision := range []string{
		"PGO devirtualizing interface call m.mix to (*adder).mix",
		"inlining call to (*adder).mix",
		"inlining call to scramble",
	} {
		if strings.Contains(before, decision) {
			t.Errorf("got %q without a profile, want it only with one:\n%s", decision, before)
		}
		if !strings.Contains(after, decision) {
			t.Errorf("got no %q with the profile:\n%s", decision, after)
		}
	}
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
