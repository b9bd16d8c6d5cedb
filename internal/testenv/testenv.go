// Package testenv says what a test needs from the machine that it runs on.
//
// A test that lacks something is skipped with a reason, so that `go test`
// works everywhere. Where everything is supposed to be there, as in CI, a
// missing need is a mistake in the set-up: with FULGUR_TEST_REQUIRE=1 in the
// environment the same test fails.
//
// Tests skip by this package alone, so that each skip is one of four sorts:
//
//   - [Skip] and what is built on it, such as [Root], [Tool] and [File]: the test
//     needs something that can be installed or allowed, and that CI has;
//   - [Unsupported], [VM] and [AnyKernel]: no set-up makes the test run here;
//   - [Long]: the test runs in make test-long;
//   - [Given]: somebody has to say what to test with.
package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Variables of the environment that are set to "1".
const (
	// RequireVar turns a skip for want of something that can be installed or
	// allowed into a failure.
	RequireVar = "FULGUR_TEST_REQUIRE"
	// LongVar has the tests run that take long.
	LongVar = "FULGUR_TEST_LONG"
	// rigVar is set in the rig's machines.
	rigVar = "FULGUR_RIG"
)

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
	if !InVM() {
		Unsupported(t, "runs only in the rig's machines (make test-vm)")
	}
}

// EveryKernel marks a test that the rig runs under all of its kernels in make test-vm:
// programs have to load under each, and what a mode measures has to be true. The other
// tests run under one kernel there, and under all in make test-long. The test function
// itself calls it, for the rig looks for the call in the source.
func EveryKernel(testing.TB) {}

// AnyKernel skips the test in one of the rig's machines: what it checks is done
// in user space, the same under every kernel, and time is dear where all is
// emulated.
func AnyKernel(t testing.TB) {
	t.Helper()
	if InVM() {
		Unsupported(t, "checks what does not depend on the kernel")
	}
}

// InVM reports whether the test runs in one of the rig's machines.
func InVM() bool { return os.Getenv(rigVar) == "1" }

// Patience returns d, or a multiple of it in one of the rig's machines: they
// are emulated, and all takes longer there.
func Patience(d time.Duration) time.Duration {
	if InVM() {
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
		Skip(t, "needs the program %s", name)
	}
	return path
}

// File returns path, and skips the test when there is no such file.
func File(t testing.TB, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		Skip(t, "needs a file: %v", err)
	}
	return path
}

// Library returns the path of a library as Debian and Ubuntu install it for this
// machine's architecture.
func Library(name string) string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return "/usr/lib/" + arch + "-linux-gnu/" + name
}

// Given returns what the environment variable says, and skips the test when it
// is not set. It is for tests of something that no set-up knows, such as a core
// dump of another machine.
func Given(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		t.Skipf("runs with what %s names", variable)
	}
	return value
}

// Long skips the test unless long tests are asked for, as make test-long does:
// those that take minutes, and repeat often what a short test does a few times.
func Long(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skipf("takes long: set %s=1, or make test-long", LongVar)
	}
}

// IsLong reports whether long tests are asked for. A test that can be thorough
// to any degree goes by it.
func IsLong() bool { return os.Getenv(LongVar) == "1" }

// Unprivileged takes root's rights over files from the rest of the test, which
// must not leave its goroutine.
func Unprivileged(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	// Another user ID for files takes the capabilities over files away, both
	// from this thread alone. No other goroutine gets the thread: it ends with
	// the test's, which stays locked to it.
	const nobody = 65534
	runtime.LockOSThread()
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Error(err)
		}
	})
}

// Skip skips the test for want of something, as in "needs root", that a set-up
// can provide.
func Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	reason := fmt.Sprintf(format, args...)
	if os.Getenv(RequireVar) == "1" {
		t.Fatalf("%s, and %s=1 forbids skipping", reason, RequireVar)
	}
	t.Skip(reason)
}

// Unsupported skips the test where it cannot run whatever is installed and
// allowed: on another architecture, a kernel without some feature, a virtual
// machine without a hardware PMU.
func Unsupported(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Skipf(format, args...)
}
