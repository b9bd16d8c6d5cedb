package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"fulgur/internal/testenv"
)

// built is the folder of files that several tests use.
var built string

// TestMain lets the test binary be its own target: the rig has no compiler.
func TestMain(m *testing.M) {
	if mode := os.Getenv("E2E_WORKLOAD"); mode != "" {
		workload(mode)
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	var err error
	if built, err = os.MkdirTemp("", "fulgur-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(built)
	return m.Run()
}

// fulgurPath is the path of fulgur.
var fulgurPath string

// building is held while a program is built that several tests use.
var building sync.Mutex

// program returns the path of fulgur. The first call builds it.
func program(t *testing.T) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	if fulgurPath == "" {
		fulgurPath = testenv.Program(t, "fulgur/cmd/fulgur", built)
	}
	return fulgurPath
}

// parallel lets a test run beside others that call it, after all tests that do not. Such a
// test measures processes or commands of its own, and compares shares or looks for functions:
// neither the load of the machine nor another fulgur changes its result. A test that counts every
// hit or event, changes the machine, or selects processes of the whole machine by their names
// does not call it. The rig's VMs emulate one CPU at a time.
func parallel(t *testing.T) {
	t.Helper()
	if !testenv.InVM() {
		t.Parallel()
	}
}

// asWorkload returns a Go program with functions of this package: the test itself, which executes
// the workload of that name when it is started.
func asWorkload(t *testing.T, name string) string {
	t.Helper()
	t.Setenv("E2E_WORKLOAD", name)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// compile builds the program called name from testdata/SOURCE, with frame
// pointers. More flags for gcc may follow.
func compile(t *testing.T, source, name string, flags ...string) string {
	t.Helper()
	args := append([]string{"-O1", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror", "testdata/" + source}, flags...)
	return testenv.Compile(t, name, "gcc", args...)
}

// awaitSampling waits until the started fulgur samples.
func awaitSampling(t *testing.T, fulgur *exec.Cmd) {
	t.Helper()
	if !testenv.AwaitPolls(t, fulgur.Process.Pid) {
		t.Fatalf("timeout: fulgur does not sample: %s", fulgur.Stderr)
	}
}

// interrupt ends a started fulgur like Ctrl-C.
func interrupt(t *testing.T, fulgur *exec.Cmd) result {
	t.Helper()
	if err := fulgur.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	return finish(t, fulgur)
}

// profile runs a command, which must succeed, under fulgur with flags. It returns the
// folded stacks, without the command's own output.
func profile(t *testing.T, flags []string, argv ...string) map[string]int {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.folded")
	args := append([]string{"profile", "-o", out}, flags...)
	r := fulgur(t, append(append(args, "--"), argv...)...)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	t.Log(r.stderr) // in case of a failure
	return readFolded(t, out)
}

// readFolded reads a file of folded stacks.
func readFolded(t *testing.T, path string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return folded(t, string(b))
}
