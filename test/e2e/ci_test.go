package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// blocks returns the code blocks of a language in a page.
func blocks(t *testing.T, page, language string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllSubmatch(text, -1) {
		list = append(list, string(m[1]))
	}
	return list
}

// The steps of docs/ci.md find a function that takes far more time, and nothing in equal profiles. The
// jobs have the same lines.
func TestCI(t *testing.T) {
	testenv.AnyKernel(t)
	testenv.Root(t)
	const page = "../../docs/ci.md"
	steps := blocks(t, page, "sh")
	if len(steps) != 3 {
		t.Fatalf("%s has %d steps, want 3: measure, compare, keep", page, len(steps))
	}
	dir := t.TempDir()
	paths := map[string]string{"base": "0", "new": "160"} // checksum takes five times as long
	steady := filepath.Join(dir, "steps")
	if out, err := exec.Command(testenv.Tool(t, "gcc"), "-O2", "-g", "-o", steady, "../diffnoise/testdata/steps.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	for side, extra := range paths {
		if err := os.Mkdir(filepath.Join(dir, side), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(steady, filepath.Join(dir, side, "steps")); err != nil {
			t.Fatal(err)
		}
		script := "#!/bin/sh\nexec " + side + "/steps 1000 " + extra + "\n"
		if err := testenv.WriteProgram(filepath.Join(dir, side, "benchmark"), []byte(script)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(program(t), filepath.Join(dir, "fulgur")); err != nil {
		t.Fatal(err)
	}
	run := func(step string) result {
		cmd := testenv.Command(t, testenv.Tool(t, "sh"), "-ec", step)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		cmd.Stdout, cmd.Stderr = new(bytes.Buffer), new(bytes.Buffer)
		return finish(t, cmd)
	}
	measure, compare, keep := steps[0], steps[1], steps[2]
	if r := run(measure); r.code != 0 {
		t.Fatalf("measure: exit code %d: %s", r.code, r.stderr)
	}
	if r := run(compare); r.code != 3 || !strings.Contains(r.stderr, "regression: self of checksum (steps) grew by") {
		t.Errorf("compare: exit code %d, want 3 and a regression of checksum: %s", r.code, r.stderr)
	}
	if r := run(keep); r.code != 0 {
		t.Errorf("keep: exit code %d: %s", r.code, r.stderr)
	}
	for name, want := range map[string]string{"diff.md": "| ` checksum ` |", "diff.json": `"function": "checksum"`, "diff.html": "base-1.pb.gz and 4 more"} {
		if text := read(t, filepath.Join(dir, name)); !strings.Contains(text, want) {
			t.Errorf("%s: got no %s", name, want)
		}
	}
	if r := run("for p in base-*.pb.gz; do cp $p new-${p#base-}; done\n" + compare); r.code != 0 || !strings.Contains(read(t, filepath.Join(dir, "diff.md")), "Nothing changed beyond noise") {
		t.Errorf("compare equal profiles: exit code %d, want 0: %s", r.code, r.stderr)
	}

	lines := map[string]bool{}
	for _, step := range steps {
		for line := range strings.Lines(step) {
			lines[strings.TrimSpace(line)] = true
		}
	}
	jobs := blocks(t, page, "yaml")
	if len(jobs) != 2 {
		t.Fatalf("%s has %d jobs, want 2", page, len(jobs))
	}
	for _, job := range jobs {
		same := 0
		for line := range strings.Lines(job) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
			if strings.HasPrefix(line, "fulgur ") || strings.HasPrefix(line, "for ") {
				if same++; !lines[line] {
					t.Errorf("a job has a line that no step has: %s", line)
				}
			}
		}
		if same != 5 {
			t.Errorf("a job has %d lines of the steps, want 5:\n%s", same, job)
		}
	}
}
