package clidoc

import (
	"bytes"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"fulgur/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// measure has a flag of each kind.
type measure struct {
	Duration string   `arg:"" optional:"" help:"How long."`
	PID      []string `short:"p" name:"pid" placeholder:"PID" group:"what" help:"These processes: all their [threads]."`
	Output   string   `short:"o" placeholder:"FILE" group:"out" help:"Write to FILE. It isn't .there before."`
	Root     string   `placeholder:"DIR" group:"out" help:"Look below DIR."`
	Event    []string `short:"e" placeholder:"EVENT" complete:"event" group:"what" help:"This event."`
	Stats    string   `enum:"text,json" default:"text" placeholder:"FORM" group:"out" help:"Sum up as text or json."`
	Rate     int      `short:"F" placeholder:"HZ" group:"out" help:"Samples a second."`
	Quiet    bool     `short:"q" group:"out" help:"Say nothing."`
	Secret   bool     `hidden:"" help:"Nobody knows."`
}

func (measure) Help() string {
	return `Measures. With "-- COMMAND" it runs
COMMAND.

.Dots and \slashes stay.

Examples:

    # one process
    tool measure -p 1

    # .folded
    tool measure -- make
`
}

// merge has an argument of each kind.
type merge struct {
	Inputs []string `arg:"" name:"in" complete:"file" help:"What to add."`
}

type shell struct {
	Name string `arg:"" enum:"bash,zsh" help:"Its name."`
}

type tool struct {
	Measure measure  `cmd:"" group:"what" help:"Measure what runs: all of it."`
	Merge   merge    `cmd:"" help:"Add files up."`
	Shell   shell    `cmd:"" help:"Choose a shell."`
	Hidden  struct{} `cmd:"" hidden:"" help:"Nobody knows."`
}

func (*tool) Help() string { return "Example:\n\n    # all\n    tool measure\n" }

// program returns the model of the test tool.
func program(t *testing.T) *Program {
	t.Helper()
	parser, err := kong.New(new(tool), kong.Name("tool"), kong.Description("A tool for tests."),
		kong.ExplicitGroups([]kong.Group{{Key: "what", Title: "What to measure"}, {Key: "out", Title: "Output"}}))
	if err != nil {
		t.Fatal(err)
	}
	p := New(parser.Model, func(node *kong.Node) bool { return node.Name == "measure" })
	return &p
}

// golden compares the output of write with a file in testdata, and returns it.
func golden(t *testing.T, name string, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("-update rewrites %s (-want +got):\n%s", path, d)
	}
	return path
}

// command runs a program and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, name), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

func TestManual(t *testing.T) {
	p := program(t)
	pages := []string{golden(t, "tool.1", p.WriteManual)}
	for i := range p.Commands {
		c := &p.Commands[i]
		pages = append(pages, golden(t, "tool-"+c.Name+".1", func(w io.Writer) error { return p.WriteCommandManual(w, c) }))
	}
	for _, page := range pages {
		if out := command(t, "groff", "-man", "-ww", "-z", "-Tutf8", page); out != "" {
			t.Errorf("%s: got warnings of groff\n%s", page, out)
		}
		command(t, "mandoc", "-Tlint", "-Werror", page)
	}
}

// typed lists command lines and their expected completions.
var typed = []struct {
	line string
	want []string // possible words
}{
	{"tool me", []string{"measure", "merge"}},
	{"tool Hid", nil},
	{"tool shell z", []string{"zsh"}},
	{"tool measure --se", nil},
	{"tool measure --pi", []string{"--pid"}},
	{"tool measure --stats j", []string{"json"}},
	{"tool measure -q --stats t", []string{"text"}},
	{"tool measure --root /et", []string{"/etc"}},
	{"tool measure -o /etc/hostn", []string{"/etc/hostname"}},
	{"tool merge /etc/hostn", []string{"/etc/hostname"}},
	{"tool measure -F 1", nil},
	{"tool measure -e tracepoint:sched:sched_sw", []string{"tracepoint:sched:sched_switch"}},
	{"tool measure -q --event=tracepoint:sc", []string{"--event=tracepoint:sched:"}},
	{"tool measure --event tracepoint:", []string{"tracepoint:sched:"}},
	{"tool measure -e nothing:", nil},
	{"tool measure -- basenam", []string{"basename"}},
	{"tool measure 5 -q -- basename /etc/hostn", []string{"/etc/hostname"}},
}

// putEvents puts a program in PATH that completes the names of two events.
func putEvents(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
[ "$1" = ` + EventCompleter + ` ] || exit 1
echo "noise" >&2
case $2 in =tracepoint:sched:*) set -- "$2" tracepoint:sched:sched_switch ;; *) set -- "$2" tracepoint:sched: ;; esac
case =$2 in "$1"*) echo "$2" ;; esac
`
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// bashWordsOf splits a line like bash: "=" and ":" are words.
func bashWordsOf(line string) (words []string) {
	for _, word := range strings.Split(line, " ") {
		if !strings.ContainsAny(word, ":") {
			words = append(words, word)
			continue
		}
		word = strings.NewReplacer(":", "\x00:\x00", "=", "\x00=\x00").Replace(word)
		words = append(words, strings.Split(strings.TrimSuffix(word, "\x00"), "\x00")...)
	}
	return words
}

func TestBash(t *testing.T) {
	putEvents(t)
	script := golden(t, "tool.bash", program(t).WriteBash)
	if out := command(t, "shellcheck", script); out != "" {
		t.Error(out)
	}
	for _, test := range typed {
		words := bashWordsOf(test.line)
		out := command(t, "bash", append([]string{"--norc", "-c", `source "$0"; COMP_WORDBREAKS="=:"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tool; printf '%s\n' "${COMPREPLY[@]}"`, script}, words...)...)
		var want []string
		for _, w := range test.want {
			// bash replaces what follows the last colon.
			if i := strings.LastIndexByte(test.line[strings.LastIndexByte(test.line, ' ')+1:], ':'); i >= 0 {
				w = w[i+1:]
			}
			want = append(want, w)
		}
		check(t, test.line, strings.Fields(out), want)
	}
	// bash makes "=" a word of its own.
	out := command(t, "bash", "--norc", "-c", `source "$0"; COMP_WORDS=(tool measure --stats = j); COMP_CWORD=4; _tool; printf '%s\n' "${COMPREPLY[@]}"`, script)
	check(t, "--stats=j", strings.Fields(out), []string{"json"})
}

func TestFish(t *testing.T) {
	putEvents(t)
	script := golden(t, "tool.fish", program(t).WriteFish)
	for _, test := range typed {
		out := command(t, "fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", script, test.line)
		var got []string
		for line := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, strings.TrimSuffix(word, "/"))
		}
		check(t, test.line, got, test.want)
	}
}

// zsh shows completions only in its line editor, which needs a terminal.
func TestZsh(t *testing.T) {
	putEvents(t)
	script, err := filepath.Abs(golden(t, "tool.zsh", program(t).WriteZsh))
	if err != nil {
		t.Fatal(err)
	}
	var lines, wants []string
	for _, test := range typed {
		// The editor completes the common prefix of all candidates.
		common := test.line
		if len(test.want) == 1 {
			common = strings.TrimSpace(common[:strings.LastIndex(common, " ")] + " " + test.want[0])
		}
		lines, wants = append(lines, test.line), append(wants, common)
	}
	out := command(t, "zsh", append([]string{"-f", filepath.Join("testdata", "complete.zsh"), script, t.TempDir()}, lines...)...)
	got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for i := range got {
		got[i] = strings.TrimRight(got[i], " /=")
	}
	if d := cmp.Diff(wants, got); d != "" {
		t.Error("(-want +got):\n" + d)
	}
}

// check compares completions. Where the machine provides them, it accepts additional
// commands and files.
func check(t *testing.T, line string, got, want []string) {
	t.Helper()
	for _, w := range want {
		found := false
		for _, g := range got {
			found = found || g == w
		}
		if !found {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
	if len(want) == 0 && len(got) > 0 {
		t.Errorf("%q: got %q, want nothing", line, got)
	}
}

func TestBrief(t *testing.T) {
	for help, want := range map[string]string{
		"Measure what runs.":                 "Measure what runs",
		"Keep N frames. Default: 127.":       "Keep N frames",
		"Sample these: all of their threads": "Sample these",
		"":                                   "",
	} {
		if got := brief(help); got != want {
			t.Errorf("%q: got %q, want %q", help, got, want)
		}
	}
}
