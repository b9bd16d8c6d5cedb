package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// await returns what is in the file, which a process writes that was started,
// once that contains text.
func await(t *testing.T, path, text string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), text) {
			return string(b)
		}
	}
	t.Fatalf("%s never contains %q", path, text)
	return ""
}

// A command that outlives the measurement is waited for, and asked to end when
// fulgur is.
func TestCommandOutlivesDuration(t *testing.T) {
	testenv.Root(t)
	out := filepath.Join(t.TempDir(), "out.folded")
	cmd := command(t, "profile", "-F", "997", "-o", out, "0.5", "--",
		testenv.Tool(t, "sh"), "-c", `trap "exit 5" TERM; while :; do :; done`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, out, "") // files appear whole
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := finish(t, cmd); r.code != 5 {
		t.Errorf("exit code %d, want the command's 5: %s", r.code, r.stderr)
	}
}

// A profile that cannot be written is a failure, said when it happens, and the
// command still ends as it would have.
func TestCommandOutlivesFailure(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	said, end, ended := filepath.Join(dir, "said"), filepath.Join(dir, "end"), filepath.Join(dir, "ended")
	cmd := command(t, "profile", "-o", "/dev/full", "--format", "pprof", "0.2", "--",
		testenv.Tool(t, "sh"), "-c", `until [ -e "$0" ]; do sleep 0.1; done; : > "$1"; exit 5`, end, ended)
	stderr, err := os.Create(said)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const failure = "fulgur: write /dev/full: no space left on device"
	if s := await(t, said, "fulgur: waiting for the command, process "); !strings.Contains(s, failure) {
		t.Errorf("it says %q", s)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v, want exit code 1", err)
	}
	if s := await(t, said, ""); strings.Count(s, failure) != 2 {
		t.Errorf("it does not end with the failure: %q", s)
	}
	if _, err := os.Stat(ended); err != nil {
		t.Errorf("the command did not reach its end: %v", err)
	}
}
