package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("-update rewrites %s (-want +got):\n%s", path, d)
	}
}

// Harmless problems have no remedies in the report.
func TestHarmless(t *testing.T) {
	report := Examine(machine("no cgroup v2, no tracefs"), "v1.2.3")
	var b strings.Builder
	if err := report.WriteText(&b, false, 0); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Contains(text, "mount -t tracefs") || !strings.Contains(text, "mount -t cgroup2") {
		t.Error(text)
	}
}

// TestMachines checks the verdicts and the warnings before a run on each machine.
func TestMachines(t *testing.T) {
	var b strings.Builder
	for _, name := range machineNames() {
		f := machine(name)
		fmt.Fprintf(&b, "# %s\n", name)
		for _, v := range Examine(f, "").Commands {
			fmt.Fprintf(&b, "%-24s %s %s\n", v.Command, v.Works, strings.Join(v.Because, " "))
		}
		warnings, err := Preflight(f, Profile)
		for _, w := range warnings {
			fmt.Fprintln(&b, "warning:", w)
		}
		if err != nil {
			fmt.Fprintln(&b, "error:", err)
		}
		fmt.Fprintln(&b)
	}
	golden(t, "machines.txt", b.String())
}

// TestReport checks the report of some machines, as text and as JSON.
func TestReport(t *testing.T) {
	for file, name := range map[string]string{"root": "root", "container": "a container", "vm": "a virtual machine", "paravirtual": "a paravirtual machine", "user": "CAP_BPF and CAP_PERFMON"} {
		report := Examine(machine(name), "v1.0.0")
		var text bytes.Buffer
		if err := report.WriteText(&text, false, 0); err != nil {
			t.Fatal(err)
		}
		golden(t, file+".txt", text.String())

		var colored bytes.Buffer
		if err := report.WriteText(&colored, true, 0); err != nil {
			t.Fatal(err)
		}
		if plain := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(colored.String(), ""); plain != text.String() || plain == colored.String() {
			t.Errorf("%s: got other differences than color: %s", name, &colored)
		}
	}
	b, err := json.MarshalIndent(Examine(machine("a container"), "v1.0.0"), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "container.json", string(b)+"\n")
}

// The report fits the terminal, except for shell commands and single words.
func TestReportFits(t *testing.T) {
	const columns = 60
	var text strings.Builder
	report := Examine(machine("a virtual machine"), "v1")
	if err := report.WriteText(&text, false, columns); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > columns && !strings.HasPrefix(line, "            ") && strings.Contains(line[min(len(line), 36):], " ") {
			t.Errorf("got %q, want at most %d characters", line, columns)
		}
	}
}

// Labels of security modules are untrusted text.
func TestReportIsPlain(t *testing.T) {
	f := machine("root")
	f.Label, f.Container = "evil\x1b]0;title\a", "\x1b[2J"
	var text bytes.Buffer
	report := Examine(f, "v1")
	if err := report.WriteText(&text, false, 0); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), "\x1b") {
		t.Errorf("got an escape sequence in %q", &text)
	}
}

// TestChecks checks the table: each problem that stops something has a remedy, and no two
// checks share an ID.
func TestChecks(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range slices.Concat(grounds, trials) {
		if seen[c.id] || !regexp.MustCompile(`^[a-z][a-z0-9_]*$`).MatchString(c.id) {
			t.Errorf("got ID %q, which is malformed or repeated", c.id)
		}
		seen[c.id] = true
		if len(c.title) > titleWidth {
			t.Errorf("%s: got the title %q, which is too long", c.id, c.title)
		}
		for _, f := range c.faults {
			if len(f.costs) > 0 && f.lost == "" {
				t.Errorf("%s: got costs without a loss", c.id)
			}
			if len(f.stops) > 0 && f.remedy == nil {
				t.Errorf("%s: got stopped commands without a remedy", c.id)
			}
		}
	}
	for _, c := range Commands {
		if name := "fulgur " + string(c); len(name) > nameWidth {
			t.Errorf("got %q, which is too long", name)
		}
	}
	for _, id := range []string{CheckProc, CheckCgroup} {
		if !seen[id] {
			t.Errorf("got no check %q", id)
		}
	}
}

// Each check that can fail does so on a test machine.
func TestEveryCheckFails(t *testing.T) {
	hit := map[string]bool{}
	for _, name := range machineNames() {
		for _, r := range Examine(machine(name), "").Checks {
			hit[r.ID] = hit[r.ID] || r.Problem != nil
		}
	}
	for _, c := range slices.Concat(grounds, trials) {
		if len(c.faults) > 0 && !hit[c.id] {
			t.Errorf("got no test machine that fails %s", c.id)
		}
	}
}

// TestRead examines this machine.
func TestRead(t *testing.T) {
	f, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if f.Release == "" || f.CPUs == 0 || f.PageSize < 4096 || f.Executable == "" {
		t.Errorf("got %+v, want all facts that every machine has", f)
	}
	for _, name := range []string{sysctlParanoid, sysctlStack, sysctlRate} {
		if _, ok := f.Sysctls[name]; !ok {
			t.Errorf("got no %s", name)
		}
	}
}

func TestErrorIsTyped(t *testing.T) {
	_, err := Preflight(machine("confidentiality"), Profile)
	var e *Error
	if !errors.As(err, &e) || e.Problems[0].Check != "lockdown" || e.Err != nil {
		t.Errorf("got %#v, want the problem lockdown", err)
	}
}
