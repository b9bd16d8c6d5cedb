// Package testenv says what a test needs from the machine that it runs on.
//
// A test that lacks something is skipped with a reason, so that `go test`
// works everywhere. Where everything is supposed to be there, as in CI, a
// missing need is a mistake in the set-up: with FULGUR_TEST_REQUIRE=1 in the
// environment the same test fails.
package testenv

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"
	"time"
)

// RequireVar names the environment variable that, when it is "1", turns
// every skip of this package into a failure.
const RequireVar = "FULGUR_TEST_REQUIRE"

// Root skips the test unless it runs as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skip(t, "needs root")
	}
}

// VM skips the test unless it runs in one of the rig's machines (make
// test-vm), where it may do what would disturb a real one: take CPUs offline,
// change sysctls. It never fails the test; the rig runs it everywhere.
func VM(t testing.TB) {
	t.Helper()
	if !inVM() {
		t.Skip("runs only in the rig's machines (make test-vm)")
	}
}

// AnyKernel skips the test in one of the rig's machines: what it checks is done
// in user space, the same under every kernel, and time is dear where all is
// emulated.
func AnyKernel(t testing.TB) {
	t.Helper()
	if inVM() {
		t.Skip("checks what does not depend on the kernel")
	}
}

func inVM() bool { return os.Getenv("FULGUR_RIG") == "1" }

// Patience returns d, or a multiple of it in one of the rig's machines: they
// are emulated, and all takes longer there.
func Patience(d time.Duration) time.Duration {
	if inVM() {
		return 5 * d
	}
	return d
}

// Program returns the path of the program whose main package is pkg, as in
// "fulgur/cmd/fulgur". It is built in the folder dir; where there is no Go, as
// in the rig's machines, the program of that name in PATH stands for it.
func Program(t testing.TB, pkg, dir string) string {
	t.Helper()
	name := path.Base(pkg)
	goTool, err := exec.LookPath("go")
	if err != nil {
		return Tool(t, name)
	}
	bin := filepath.Join(dir, name)
	build := exec.Command(goTool, "build", "-o", bin, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return bin
}

// Tool returns the path of the program called name, and skips the test when
// it is not in PATH.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Skip(t, "needs the program "+name)
	}
	return path
}

// Skip skips the test because of reason, which says what the test needs, as
// in "needs root". Use t.Skip for what no set-up can provide, such as a
// hardware PMU in a virtual machine.
func Skip(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv(RequireVar) == "1" {
		t.Fatalf("%s, and %s=1 forbids skipping", reason, RequireVar)
	}
	t.Skip(reason)
}
