package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/testenv"
)

// manuals is the directory of the manual pages, which packages contain.
var manuals = filepath.Join("..", "..", "docs", "man")

// The manual pages match the command line.
func TestManuals(t *testing.T) {
	p, err := commandLine()
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]func(io.Writer) error{"fulgur.1": p.WriteManual}
	for i := range p.Commands {
		pages["fulgur-"+p.Commands[i].Name+".1"] = func(w io.Writer) error { return p.WriteCommandManual(w, &p.Commands[i]) }
	}
	for name, write := range pages {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(manuals, name)
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v: -update writes it", err)
		}
		if d := cmp.Diff(string(want), got.String()); d != "" {
			t.Errorf("-update rewrites %s (-want +got):\n%s", path, d)
		}
	}
	entries, err := os.ReadDir(manuals)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if pages[e.Name()] == nil {
			t.Errorf("%s: got a page without a command", filepath.Join(manuals, e.Name()))
		}
	}
}

// Shells accept their completion scripts.
func TestCompletion(t *testing.T) {
	for shell, check := range map[string][]string{"bash": {"shellcheck"}, "zsh": {"zsh", "-n"}, "fish": {"fish", "-n"}} {
		t.Run(shell, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), []string{"completion", shell}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
				t.Fatalf("got exit code %d, standard error %q; want 0 and none", code, &stderr)
			}
			script := filepath.Join(t.TempDir(), "script")
			if err := os.WriteFile(script, stdout.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(testenv.Tool(t, check[0]), slices.Concat(check[1:], []string{script})...).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
