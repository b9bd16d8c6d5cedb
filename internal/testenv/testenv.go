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

// Environment variables that are set to "1".
const (
	// RequireVar turns a skip into a failure if the missing need can be installed or
	// permitted.
	RequireVar = "FULGUR_TEST_REQUIRE"
	// LongVar enables long tests.
	LongVar = "FULGUR_TEST_LONG"
	// rigVar is set in the rig's VMs.
	rigVar = "FULGUR_RIG"
)

// Root skips the test unless it runs as root, and with -short.
func Root(t testing.TB) {
	t.Helper()
	Slow(t)
	if os.Geteuid() != 0 {
		Skip(t, "needs root")
	}
}

// VM skips the test unless it runs in one of the rig's VMs (make test-vm), where it may
// disturb the machine: take CPUs offline, change sysctls. It never fails the test, since
// the rig runs it everywhere.
func VM(t testing.TB) {
	t.Helper()
	if !InVM() {
		Unsupported(t, "runs only in the rig's machines (make test-vm)")
	}
}

// EveryKernel marks a test that make test-vm runs under all kernels of the rig: programs have to load on
// each, and measurements have to be correct. make test-long also runs all other tests there. The test
// function, or a function of its package that it calls, must call EveryKernel, because the rig searches the
// source for the call.
func EveryKernel(testing.TB) {}

// OneKernel marks a test that make test-vm runs under one kernel of the rig, because other machines may lack
// what it needs, such as kprobes, or because its subject differs between kernels. A call of VM, Breakpoints
// or pmu.Load marks a test as well.
func OneKernel(testing.TB) {}

// AnyKernel skips the test in the rig's VMs: it tests only user space, which is the same
// on every kernel, and emulated VMs are slow.
func AnyKernel(t testing.TB) {
	t.Helper()
	if InVM() {
		Unsupported(t, "checks what does not depend on the kernel")
	}
}

// SlowInVM skips a part of a marked test in make test-vm: other tests of the same programs and kernel
// interfaces run there, and emulation is 20 times slower.
func SlowInVM(t testing.TB) {
	t.Helper()
	if BriefInVM() {
		Unsupported(t, "takes long in emulated VMs: make test-long runs it there")
	}
}

// InVM reports whether the test runs in one of the rig's VMs.
func InVM() bool { return os.Getenv(rigVar) == "1" }

// BriefInVM reports whether tests of adjustable thoroughness should be brief: in the rig's VMs,
// which are slow, unless long tests are enabled.
func BriefInVM() bool { return InVM() && !IsLong() }

// Patience returns d, or a multiple of it in the rig's VMs, which are emulated and slow.
func Patience(d time.Duration) time.Duration {
	if InVM() {
		return 5 * d
	}
	return d
}

// Program returns the path of the program with main package pkg, such as
// "fulgur/cmd/fulgur". It builds the program in the directory dir. Without Go, as in the
// rig's VMs, it uses the program of that name in PATH.
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

// Tool returns the path of the named program. It skips the test if it is not in PATH.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Skip(t, "needs the program %s", name)
	}
	return path
}

// File returns path. It skips the test if there is no such file.
func File(t testing.TB, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		Skip(t, "needs a file: %v", err)
	}
	return path
}

// Library returns the path where Debian and Ubuntu install the library for this machine's
// architecture.
func Library(name string) string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return "/usr/lib/" + arch + "-linux-gnu/" + name
}

// Given returns the value of the environment variable. It skips the test if it is not
// set. It is for input that no setup can provide, such as a core dump of another machine.
func Given(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		t.Skipf("runs with the input that %s names", variable)
	}
	return value
}

// Long skips the test unless long tests are enabled, as in make test-long. Long tests
// take minutes and repeat many times what a short test does a few times.
func Long(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skipf("takes long: set %s=1, or make test-long", LongVar)
	}
}

// Slow skips the test with -short, as in make quick. It takes seconds.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short")
	}
}

// IsLong reports whether long tests are enabled, for tests of adjustable thoroughness.
func IsLong() bool { return os.Getenv(LongVar) == "1" }

// Unprivileged removes root's privileges over files for the rest of the test, which must
// stay on its goroutine.
func Unprivileged(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	// Changing the user ID for files drops the capabilities over files. Both affect only
	// this thread. No other goroutine gets it: it stays locked to the test's goroutine
	// and ends with it.
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

// Skip skips the test because of a missing need that a setup can provide, such as "needs
// root".
func Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	reason := fmt.Sprintf(format, args...)
	if os.Getenv(RequireVar) == "1" {
		t.Fatalf("%s, and %s=1 forbids skipping", reason, RequireVar)
	}
	t.Skip(reason)
}

// Unsupported skips the test where no setup makes it run: on another architecture, a
// kernel without a feature, a virtual machine without a hardware PMU.
func Unsupported(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Skipf(format, args...)
}
