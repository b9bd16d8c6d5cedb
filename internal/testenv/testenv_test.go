package testenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// outcome is a testing.TB that records how the test ended. Like the real methods, Skip
// and Fatalf do not return.
type outcome struct {
	testing.TB
	verdict, reason, log string
}

func (o *outcome) Helper() {}

func (o *outcome) Logf(format string, args ...any) { o.log += fmt.Sprintf(format, args...) }

func (o *outcome) Skip(args ...any) {
	o.verdict, o.reason = "skip", fmt.Sprint(args...)
	panic(o)
}

func (o *outcome) Skipf(format string, args ...any) {
	o.Skip(fmt.Sprintf(format, args...))
}

func (o *outcome) Fatalf(format string, args ...any) {
	o.verdict, o.reason = "fail", fmt.Sprintf(format, args...)
	panic(o)
}

// verdict runs f as a test and returns how it ended.
func verdict(f func(testing.TB)) (o *outcome) {
	o = &outcome{verdict: "pass"}
	defer func() {
		if r := recover(); r != nil && r != o {
			panic(r)
		}
	}()
	f(o)
	return o
}

func TestMissingTool(t *testing.T) {
	for _, tc := range []struct{ require, want string }{
		{"", "skip"},
		{"0", "skip"},
		{"1", "fail"},
	} {
		t.Run("require="+tc.require, func(t *testing.T) {
			t.Setenv(RequireVar, tc.require)
			got := verdict(func(tb testing.TB) { Tool(tb, "no-such-program") })
			if got.verdict != tc.want {
				t.Errorf("missing program: got %s, want %s", got.verdict, tc.want)
			}
			if !strings.Contains(got.reason, "no-such-program") {
				t.Errorf("got reason %q, want the program's name in it", got.reason)
			}
		})
	}
}

// Only things that can be installed or permitted are required.
func TestRequired(t *testing.T) {
	t.Setenv(RequireVar, "1")
	t.Setenv(LongVar, "")
	t.Setenv(rigVar, "")
	for _, tc := range []struct {
		name, want string
		ask        func(testing.TB)
	}{
		{"file", "fail", func(t testing.TB) { File(t, "/no such file") }},
		{"there", "pass", func(t testing.TB) { File(t, "/") }},
		{"need", "fail", func(t testing.TB) { Skip(t, "needs %d rights", 2) }},
		{"machine", "skip", func(t testing.TB) { Unsupported(t, "needs another processor") }},
		{"VM", "skip", VM},
		{"any kernel", "pass", AnyKernel},
		{"long", "skip", Long},
		{"not given", "skip", func(t testing.TB) { Given(t, "FULGUR_TEST_NOT_GIVEN") }},
	} {
		if got := verdict(tc.ask); got.verdict != tc.want {
			t.Errorf("%s: got %s (%s), want %s", tc.name, got.verdict, got.reason, tc.want)
		}
	}
	t.Setenv(LongVar, "1")
	t.Setenv(rigVar, "1")
	for name, got := range map[string]*outcome{"long": verdict(Long), "VM": verdict(VM)} {
		if got.verdict != "pass" {
			t.Errorf("%s, requested: got %s, want pass", name, got.verdict)
		}
	}
	t.Setenv("FULGUR_TEST_GIVEN", "a file")
	if got := Given(t, "FULGUR_TEST_GIVEN"); got != "a file" {
		t.Errorf("got %q, want a file", got)
	}
}

// Unprivileged drops root's permission to read files until the test ends.
func TestUnprivileged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	t.Run("without", func(t *testing.T) {
		Unprivileged(t)
		if _, err := os.ReadFile(path); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("got error %v for an unreadable file, want %v", err, fs.ErrPermission)
		}
	})
	if _, err := os.ReadFile(path); os.Geteuid() == 0 && err != nil {
		t.Errorf("root cannot read the file afterwards: %v", err)
	}
}

func TestPresentTool(t *testing.T) {
	want, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(RequireVar, "1")
	if got := Tool(t, "true"); got != want {
		t.Errorf("Tool(true): got %q, want %q", got, want)
	}
}

func TestRoot(t *testing.T) {
	t.Setenv(RequireVar, "")
	want := "skip"
	if os.Geteuid() == 0 {
		want = "pass"
	}
	if got := verdict(Root); got.verdict != want {
		t.Errorf("uid %d: got %s, want %s", os.Geteuid(), got.verdict, want)
	}
}
