package goroutines

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

var toolchains = flag.String("toolchains", "local", "versions of Go, as of GOTOOLCHAIN, to test with, separated by commas")

// goOutput returns the output of the go command of a version. The test is skipped if the version is not available.
func goOutput(t *testing.T, toolchain, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "go"), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN="+toolchain, "GOFLAGS=", "GO111MODULE=on", "GOWORK=off", "GOPROXY=off", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil && bytes.Contains(out, []byte("download")) {
		testenv.Unsupported(t, "%s is not at hand: %s", toolchain, out)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return strings.TrimSpace(string(out))
}

// The texts of reasons, by their numbers, are those in the source of Go's runtime.
func TestReasons(t *testing.T) {
	for _, toolchain := range strings.Split(*toolchains, ",") {
		t.Run(toolchain, func(t *testing.T) {
			root, built := goOutput(t, toolchain, ".", "env", "GOROOT"), goOutput(t, toolchain, ".", "env", "GOVERSION")
			source, err := os.ReadFile(filepath.Join(root, "src", "runtime", "runtime2.go"))
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, m := range regexp.MustCompile(`(?m)^\twaitReason\w+ .*// "(.*)"$`).FindAllSubmatch(source, -1) {
				want = append(want, string(m[1]))
			}
			r, err := releaseOf(built)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.reasons, want) || len(want) < 30 {
				t.Errorf("%s: got reasons %q, want %q", built, r.reasons, want)
			}
		})
	}
}

func TestReleaseOf(t *testing.T) {
	for built, want := range map[string]string{
		"go1.21": "go1.21", "go1.21.13": "go1.21", "go1.22rc1": "go1.22", "go1.24.1 X:nocoverageredesign": "go1.24",
		"go1.25.5-vendor": "go1.25", "go1.26.8": "go1.26",
	} {
		if r, err := releaseOf(built); err != nil || r.since != want {
			t.Errorf("%s: got %v, %v; want %s", built, r, err, want)
		}
	}
	for built, want := range map[string]string{
		"go1.20.14": "older than go1.21", "go1.27": "fulgur knows go1.21 to go1.26", "go2.0": "fulgur knows",
		"devel go1.27-abcdef": "fulgur knows", "": "fulgur knows",
	} {
		if r, err := releaseOf(built); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v; want an error with %q", built, r, err, want)
		}
	}
}

// Numbers without a text are no reason.
func TestReason(t *testing.T) {
	var unknown *release
	for _, r := range []*release{unknown, &releases[0]} {
		for _, n := range []uint64{0, 1000, 1 << 62} {
			if got := r.reason(n); got != "waiting" {
				t.Errorf("reason %d: got %q, want \"waiting\"", n, got)
			}
		}
	}
	if got := releases[0].reason(2); got != "IO wait" {
		t.Errorf("got %q, want IO wait", got)
	}
}
