package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// Stacks with code that Mono has generated do not count as complete, since callers may be missing in them,
// unless Mono keeps frame pointers: then all callers are there.
func TestMono(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	mono := testenv.Tool(t, "mono")
	program := filepath.Join(t.TempDir(), "callers.exe")
	if text, err := exec.Command(testenv.Tool(t, "mcs"), "-out:"+program, "testdata/Callers.cs").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for option, kept := range map[string]bool{"no-gdb-backtrace": false, "no-gdb-backtrace,disable_omit_fp": true} {
		out := filepath.Join(t.TempDir(), "out.jsonl")
		r := fulgur(t, "profile", "-F", "999", "--stream", "--format", "jsonl", "-o", out, "--", "env", "MONO_DEBUG="+option, mono, program)
		if r.code != 0 {
			t.Fatalf("%s: exit code %d: %s", option, r.code, r.stderr)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		want, callers, samples := "callers missing in generated code", 1, 0
		if kept {
			want, callers = "complete", 4 // Inner, Outer, Main and a wrapper
		}
		for line := range strings.Lines(string(text)) {
			var s streamed
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatal(err)
			}
			generated := 0
			for _, f := range s.User {
				if f.Module == "[jit]" {
					generated++
				}
			}
			if generated == 0 || s.User[len(s.User)-1].Function != "_start" {
				continue
			}
			if samples++; s.End != want {
				t.Fatalf("%s: got end %q, want %q: %s", option, s.End, want, line)
			}
			if s.User[0].Module == "[jit]" && generated >= callers {
				callers = 0 // seen
			}
		}
		if samples == 0 || callers != 0 {
			t.Errorf("%s: got %d samples of generated code, and %d frames in none of them", option, samples, callers)
		}
		if strings.Contains(r.stderr, "MONO_DEBUG=disable_omit_fp") == kept {
			t.Errorf("%s: advice to set an option, or none: %s", option, r.stderr)
		}
	}
}
