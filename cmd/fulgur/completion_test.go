package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/testenv"
	"fulgur/internal/ui/clidoc"
)

// manuals is the directory of the manual pages, which packages contain.
var manuals = filepath.Join("..", "..", "docs", "man")

// The manual pages match the command line.
func TestManuals(t *testing.T) {
	parser, err := newParser(subcommands, io.Discard, io.Discard, func() {})
	if err != nil {
		t.Fatal(err)
	}
	app := parser.Model
	pages := map[string]func(io.Writer) error{"fulgur.1": func(w io.Writer) error { return clidoc.WriteManual(w, app) }}
	for _, c := range clidoc.Commands(app) {
		_, launches := c.Target.Addr().Interface().(launcher)
		pages["fulgur-"+c.Name+".1"] = func(w io.Writer) error { return clidoc.WriteCommandManual(w, app, c, launches) }
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

// A command line without words has no last one.
func TestCompleteNothing(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{clidoc.Completer}, &stdout, &stderr); code != exitFailed || stdout.Len()+stderr.Len() > 0 {
		t.Errorf("got exit code %d, %q and %q, want %d and nothing", code, &stdout, &stderr, exitFailed)
	}
}

// TestComplete completes words whose candidates are not in the grammar, and words that choose the command.
func TestComplete(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	for line, want := range map[string]string{
		"prof":                "profile\tSample CPU time by stack\n",
		"help vi":             "view\tShow a profile in a browser, with source and assembly\n",
		"comp":                "completion\tPrint a completion script for a shell\n", // not the hidden command
		"nosuch --":           "",
		"profile -p " + self:  "\n" + self + "\t",
		"count -e usd":        "usdt:\n",
		"profile --unwind=d":  "--unwind=dwarf\n",
		"convert --unit=":     "--unit=s\n",
		"agent --bolt-dir /x": "directory\t/x\n",
		"view -- x":           "",
		"profile --format o":  "\notlp\notlp-json\n",
		"convert --format pr": "\npreagg\n",
		"diff --format=sv":    "\n--format=svg\n",
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"complete", "--"}, words(line)...), &stdout, &stderr)
		if code != 0 || stderr.Len() > 0 || !strings.Contains(stdout.String(), want) || want == "" && strings.Count(stdout.String(), "\n") != 1 {
			t.Errorf("%q: got exit code %d, %q and %q, want 0 and %q", line, code, &stdout, &stderr, want)
		}
	}
}
