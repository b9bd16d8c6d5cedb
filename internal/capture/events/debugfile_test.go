package events

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// A debug file can have wrong symbols: those within a function of the file get no breakpoint.
func TestForgedDebugFile(t *testing.T) {
	dir := t.TempDir()
	program, debug := filepath.Join(dir, "program"), filepath.Join(dir, "program.debug")
	source := filepath.Join(dir, "program.c")
	if err := os.WriteFile(source, []byte("__attribute__((noinline)) int right(int n) { return n * 0x12345; }\nint main(int n, char **a) { (void)a; return right(n); }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(testenv.Tool(t, name), args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	run("gcc", "-O1", "-no-pie", "-Wl,--build-id=none", "-o", program, source)
	var text, right uint64
	for _, s := range testenv.Symbols(t, program) {
		switch s.Name {
		case "_start":
			text = s.Value // the start of .text
		case "right":
			right = s.Value
		}
	}
	run("objcopy", fmt.Sprintf("--add-symbol=wrong=.text:%#x,function,global", right+3-text), program, debug)
	run("objcopy", "--strip-all", "--add-gnu-debuglink="+debug, program)
	for name, want := range map[string]string{"right": "", "wrong": errWithin.Error()} {
		event, err := Parse("uprobe:" + program + ":" + name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := (&Resolver{MaxProbes: DefaultMaxProbes}).Resolve(event, Query{})
		if err == nil {
			if want != "" || len(p.Points) != 1 {
				t.Errorf("%s: got places %v, want an error: %q", name, p.Points, want)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		} else if want == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", name, err, want)
		}
	}
}
