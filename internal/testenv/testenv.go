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
	"testing"
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
