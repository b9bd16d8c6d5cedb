package branches

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/message/usage"
	"fulgur/internal/testenv"
)

// fakeLLVM makes a directory with the programs of an LLVM version, and sets PATH to it.
func fakeLLVM(t *testing.T, version string, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'Debian LLVM version " + version + "'\n"
	for _, name := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	return dir
}

// installedLLVM selects the newest LLVM that can read the requested format.
func TestInstalledLLVM(t *testing.T) {
	testenv.File(t, "/bin/sh")
	for _, test := range []struct {
		asked, version string
		programs       []string
		want           int // 0 if none in PATH is selected
	}{
		{"auto", "99.1.0", []string{"llvm-bolt", "perf2bolt"}, 22},
		{"22", "99.1.0", []string{"llvm-bolt", "perf2bolt"}, 22},
		{"16", "99.1.0", []string{"llvm-bolt", "perf2bolt"}, 16},
		{"auto", "99.1.0", []string{"llvm-bolt"}, 0},
		{"auto", "15.0.0", []string{"llvm-bolt", "perf2bolt"}, 0},
		{"22", "21.1.0", []string{"llvm-bolt", "perf2bolt"}, 0},
	} {
		dir := fakeLLVM(t, test.version, test.programs...)
		l, err := installedLLVM(t.Context(), test.asked)
		switch {
		case test.want == 0 && err == nil && l.dir == dir:
			t.Errorf("%+v: got %+v, want none", test, l)
		case test.want == 0 && err != nil && !strings.Contains(err.Error(), "install them"):
			t.Errorf("%+v: got %v, want a remedy", test, err)
		case test.want != 0 && (err != nil || l.dir != dir || l.version != test.want):
			t.Errorf("%+v: got %+v, %v; want version %d", test, l, err, test.want)
		}
	}
	fakeLLVM(t, "of no kind", "llvm-bolt")
	if _, err := installedLLVM(t.Context(), "auto"); err == nil {
		t.Error("got no error for a malformed version")
	}
	if _, err := installedLLVM(t.Context(), "17"); !errors.Is(err, usage.Err) {
		t.Errorf("version 17: got %v, want %v", err, usage.Err)
	}
}
