package clidoc

import (
	"bytes"
	"flag"
	"fmt"
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

// ids is a list of IDs.
type ids []int

func (i *ids) UnmarshalText([]byte) error { return nil }

// measure has a flag of each kind.
type measure struct {
	Duration string   `arg:"" optional:"" help:"How long."`
	PID      ids      `short:"p" name:"pid" placeholder:"PID,..." group:"what" help:"These processes: all their [threads]."`
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

// model returns the model of the test tool.
func model() (*kong.Application, error) {
	parser, err := kong.New(new(tool), kong.Name("tool"), kong.Description("A tool for tests."),
		kong.ExplicitGroups([]kong.Group{{Key: "what", Title: "What to measure"}, {Key: "out", Title: "Output"}}))
	if err != nil {
		return nil, err
	}
	return parser.Model, nil
}

// modelFor returns the model of the test tool.
func modelFor(t *testing.T) *kong.Application {
	t.Helper()
	app, err := model()
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// TestMain runs the tests, or completes a command line as the test tool.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != Completer {
		os.Exit(m.Run())
	}
	app, err := model()
	if err == nil {
		fmt.Fprintln(os.Stderr, "noise")
		err = Complete(os.Stdout, app, os.Args[3:], sources)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sources know two events and two processes.
var sources = Sources{
	CommandName: func(string) []Candidate {
		return []Candidate{{"measure", "Measure what runs"}, {"merge", "Add files up"}, {"shell", "Choose a shell"}}
	},
	"process": func(string) []Candidate { return []Candidate{{"170", "init: one"}, {"171", ""}} },
	"event": func(beginning string) []Candidate {
		if strings.HasPrefix(beginning, "tracepoint:sched:") {
			return []Candidate{{Word: "tracepoint:sched:sched_switch"}}
		}
		return []Candidate{{Word: "tracepoint:sched:"}}
	},
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
	app := modelFor(t)
	pages := []string{golden(t, "tool.1", func(w io.Writer) error { return WriteManual(w, app) })}
	for _, c := range Commands(app) {
		pages = append(pages, golden(t, "tool-"+c.Name+".1", func(w io.Writer) error {
			return WriteCommandManual(w, app, c, c.Name == "measure")
		}))
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
	{"~/tool me", []string{"measure", "merge"}},
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
	{"tool measure -p 17", []string{"170", "171"}},
	{"tool measure -p 171,170", []string{"171,170"}},
	{"tool measure --root=/et", []string{"--root=/etc"}},
	{"tool measure -q --output=/etc/hostn", []string{"--output=/etc/hostname"}},
	{"tool measure -qo/etc/hostn", []string{"-qo/etc/hostname"}},
	{"tool measure --stats=j", []string{"--stats=json"}},
	{"tool measure -- basenam", []string{"basename"}},
	{"tool measure 5 -q -- basename /etc/hostn", []string{"/etc/hostname"}},
}

// completion returns the script for a shell in a file, after it has put the test tool in PATH.
func completion(t *testing.T, shell string) (path string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "tool")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("HOME", dir)
	script, err := Script("tool", shell)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "script")
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// bashWordsOf splits a line like bash: "=" and ":" are words.
func bashWordsOf(line string) (words []string) {
	for _, word := range strings.Split(line, " ") {
		if !strings.ContainsAny(word, ":=") {
			words = append(words, word)
			continue
		}
		word = strings.NewReplacer(":", "\x00:\x00", "=", "\x00=\x00").Replace(word)
		words = append(words, strings.Split(strings.TrimSuffix(word, "\x00"), "\x00")...)
	}
	return words
}

func TestBash(t *testing.T) {
	script := completion(t, "bash")
	if out := command(t, "shellcheck", script); out != "" {
		t.Error(out)
	}
	for _, test := range typed {
		words := bashWordsOf(test.line)
		out := command(t, "bash", append([]string{"--norc", "-c", `source "$0"; COMP_WORDBREAKS="=:"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tool; printf '%s\n' "${COMPREPLY[@]}"`, script}, words...)...)
		var want []string
		for _, w := range test.want {
			// bash replaces what follows the last break.
			if i := strings.LastIndexAny(test.line[strings.LastIndexByte(test.line, ' ')+1:], ":="); i >= 0 {
				w = w[i+1:]
			}
			want = append(want, w)
		}
		check(t, test.line, strings.Fields(out), want)
	}
}

func TestFish(t *testing.T) {
	script := completion(t, "fish")
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
	script := completion(t, "zsh")
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

// TestComplete completes lines as all shells do.
func TestComplete(t *testing.T) {
	app := modelFor(t)
	for line, want := range map[string]string{
		"":                        "word\t\nmeasure\tMeasure what runs\nmerge\tAdd files up\nshell\tChoose a shell\n",
		"--":                      "word\t\n--help\tShow context-sensitive help\n",
		"nothing -":               "word\t\n",
		"measure ":                "word\t\n",
		"measure 5 ":              "word\t\n",
		"measure --q":             "word\t\n--quiet\tSay nothing\n",
		"measure -q --q":          "word\t\n",
		"measure -qF9 --r":        "word\t\n--root\tLook below DIR\n",
		"measure -p1 --pi":        "word\t\n--pid\tThese processes\n",
		"measure -p":              "word\t\n-p\tThese processes\n",
		"measure -p ":             "word\t\n170\tinit: one\n171\n",
		"measure -p 3,17":         "word\t\n3,170\tinit: one\n3,171\n",
		"measure -qp3,170":        "word\t\n-qp3,170\tinit: one\n",
		"measure -F --stats -q -": "word\t\n-h\tShow context-sensitive help\n--help\tShow context-sensitive help\n",
		"measure --unknown --st":  "word\t\n--stats\tSum up as text or json\n",
		"measure --unknown=":      "word\t\n",
		"measure -x":              "word\t\n",
		"measure --secret=":       "word\t\n",
		"measure --stats=":        "word\t\n--stats=text\n--stats=json\n",
		"measure -o":              "word\t\n-o\tWrite to FILE\n",
		"measure -o -":            "file\t-\n",
		"measure --output=a=b":    "file\ta=b\n",
		"measure -qo a -q --root": "word\t\n--root\tLook below DIR\n",
		"merge - b c":             "file\tc\n",
		"shell bash z":            "word\t\n",
	} {
		var got strings.Builder
		if err := Complete(&got, app, strings.Split(line, " "), sources); err != nil {
			t.Fatal(err)
		}
		if line == "measure -F --stats -q -" { // only the first of many
			if !strings.HasPrefix(got.String(), want) || strings.Contains(got.String(), "--quiet") {
				t.Errorf("%q: got %q, want it to begin with %q, without --quiet", line, got.String(), want)
			}
		} else if got.String() != want {
			t.Errorf("%q: got %q, want %q", line, got.String(), want)
		}
	}
}

// TestPending finds flags at the end of a line that lack their value.
func TestPending(t *testing.T) {
	app := modelFor(t)
	for line, want := range map[string]string{
		"": "", "-o": "-o", "--output": "--output", "-qo": "-o", "-o a": "", "-oa": "", "--output=": "", "-o -o": "", "-q": "", "-x": "", "-": "",
	} {
		if got := Pending(app.Children[0].Flags, strings.Fields(line)); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

func TestBrief(t *testing.T) {
	for help, want := range map[string]string{
		"Measure what runs.":                 "Measure what runs",
		"Keep N frames. Default: 127.":       "Keep N frames",
		"Sample these: all of their threads": "Sample these",
		"Remember N stacks (bcc: --stacks).": "Remember N stacks",
		"Keep N of them (or all). More: no.": "Keep N of them (or all)",
		"":                                   "",
	} {
		if got := brief(help); got != want {
			t.Errorf("%q: got %q, want %q", help, got, want)
		}
	}
}
