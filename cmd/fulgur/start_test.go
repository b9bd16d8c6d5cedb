package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// TestStart runs fulgur, linked as in a release, with limits on address space: it runs at the one that it
// names, and says why it stops below.
func TestStart(t *testing.T) {
	const entry = "-E main.start"
	if makefile, err := os.ReadFile("../../Makefile"); err != nil || !strings.Contains(string(makefile), " "+entry+" ") {
		t.Errorf("releases are not linked with %s (%v)", entry, err)
	}
	program := filepath.Join(t.TempDir(), "fulgur")
	build := testenv.Command(t, testenv.Tool(t, "go"), "build", "-ldflags", entry, "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for kibibytes, code := range map[int]int{addressSpace >> 10: 0, addressSpace>>10 - 1: exitFailed, 400 << 10: exitFailed, 100 << 10: exitFailed} {
		script := fmt.Sprintf(`ulimit -v %d && exec "$0" version`, kibibytes)
		cmd := testenv.Command(t, testenv.Tool(t, "sh"), "-c", script, program)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code || (string(out) == tooLittleSpace) != (code != 0) {
			t.Errorf("with %d KiB: got %q and %v, want exit code %d", kibibytes, out, err, code)
		}
	}
}
