package testenv

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// outcome stands in for a test and keeps how it ended. Like the real ones,
// its Skip and Fatalf do not return.
type outcome struct {
	testing.TB
	verdict, reason string
}

func (o *outcome) Helper() {}

func (o *outcome) Skip(args ...any) {
	o.verdict, o.reason = "skip", args[0].(string)
	panic(o)
}

func (o *outcome) Fatalf(_ string, args ...any) {
	o.verdict, o.reason = "fail", args[0].(string)
	panic(o)
}

// verdict runs f as a test would be run and tells how it ended.
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
				t.Errorf("missing program: %s, want %s", got.verdict, tc.want)
			}
			if !strings.Contains(got.reason, "no-such-program") {
				t.Errorf("reason %q does not name the program", got.reason)
			}
		})
	}
}

func TestPresentTool(t *testing.T) {
	want, err := exec.LookPath("true")
	if err != nil {
		t.Skip("no program called true")
	}
	t.Setenv(RequireVar, "1")
	if got := Tool(t, "true"); got != want {
		t.Errorf("Tool(true) = %q, want %q", got, want)
	}
}

func TestRoot(t *testing.T) {
	t.Setenv(RequireVar, "")
	want := "skip"
	if os.Geteuid() == 0 {
		want = "pass"
	}
	if got := verdict(Root); got.verdict != want {
		t.Errorf("as uid %d: %s, want %s", os.Geteuid(), got.verdict, want)
	}
}
