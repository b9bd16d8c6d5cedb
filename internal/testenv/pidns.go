package testenv

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// InPIDNamespace runs tests of the same package again, in a child PID namespace with its
// own /proc. pattern selects them, as -test.run does.
func InPIDNamespace(t *testing.T, pattern string) {
	t.Helper()
	Root(t)
	cmd := exec.Command(Tool(t, "unshare"), "--pid", "--fork", "--kill-child", "--mount-proc",
		os.Args[0], "-test.v", "-test.run", pattern)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n--- PASS") {
		t.Errorf("in a PID namespace: %v; want tests that pass:\n%s", err, out)
	}
}
