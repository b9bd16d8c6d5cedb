package e2e

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// unnamed matches what summaries and reports say about missing names.
var unnamed = regexp.MustCompile(`(?m)^ +(\d+)(?: of \d+)? \w+ (in unnamed functions|with unnamed callers|in unnamed generated code)`)

// counts returns what a text says about missing names.
func counts(text string) (all []string) {
	for _, m := range unnamed.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1]+" "+m[2])
	}
	return all
}

// The terminal, and reports of the files that each command writes, have the same numbers.
func TestSameNumbers(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	parallel(t)
	some := 0
	const script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 0.1"
	for _, args := range [][]string{{"profile"}, {"profile", "--wall"}, {"offcpu"}, {"faults"}, {"record"}} {
		for _, ending := range []string{".pb.gz", ".html", ".json.gz"} {
			if args[0] == "profile" && ending == ".json.gz" {
				continue // times of samples, without their numbers
			}
			out := filepath.Join(t.TempDir(), "out"+ending)
			r := fulgur(t, slices.Concat(args, []string{"-o", out, "--", "sh", "-c", script})...)
			if r.code != 0 {
				t.Fatalf("%v: exit code %d: %s", args, r.code, r.stderr)
			}
			report := fulgur(t, "report", out)
			if got, want := counts(report.stdout), counts(r.stderr); !slices.Equal(got, want) {
				t.Errorf("%v -o %s: the report has %q, the summary %q:\n%s", args, filepath.Base(out), got, want, r.stderr)
			}
			some += len(counts(r.stderr))
		}
	}
	if some == 0 {
		testenv.Unsupported(t, "the shell has symbols")
	}
}

// Without --verbose, a summary has at most eight lines, and one about what is missing.
func TestShortSummary(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	parallel(t)
	out := filepath.Join(t.TempDir(), "out.html")
	r := fulgur(t, "profile", "--verbose=false", "-F", "999", "-o", out, "--", "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 0.5")
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	text, _, ok := strings.Cut(r.stderr, "written: ")
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return line == "" })
	if !ok || len(lines) > 8+1 {
		t.Errorf("got %d lines, want at most 8 and one about what is missing:\n%s", len(lines), r.stderr)
	}
	if strings.Contains(r.stderr, "fulgur itself: ") {
		t.Errorf("the cost is in a short summary:\n%s", r.stderr)
	}
}
