package main

import (
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Files from a machine are neither shown nor logged.
func TestFollowFiles(t *testing.T) {
	var log, shown strings.Builder
	f := follower{log: &log, report: &report{}, dir: t.TempDir(), show: func(line string) { shown.WriteString(line + "\n") }}
	content := strings.Repeat("some content\n", 100)
	text := base64.StdEncoding.EncodeToString([]byte(content))
	out := "before\n" + markFile + "/../out/a\r\n" + text[:100] + "\n" + text[100:] + "\n" + markFileEnd + "\nafter\n"
	if err := f.follow(strings.NewReader(out)); err != nil {
		t.Fatal(err)
	}
	if want := "before\nafter\n"; log.String() != want || shown.String() != want {
		t.Errorf("logged %q, shown %q, want %q", log.String(), shown.String(), want)
	}
	got, err := os.ReadFile(filepath.Join(f.dir, "out", "a"))
	if err != nil || string(got) != content {
		t.Errorf("file contains %q, %v, want %q", got, err, content)
	}
}

// Each request of a machine is answered with the next tests. Requests are neither shown
// nor logged.
func TestFollowRequests(t *testing.T) {
	var answers, log, shown strings.Builder
	f := follower{
		queue: queueOf("a", "b"), answers: &answers, log: &log, report: &report{},
		show: func(line string) { shown.WriteString(line + "\n") },
	}
	out := markNext + "\r\n" + markBegin + "a\n" + markEnd + "a ok\n" + markNext + "\n" + markBegin + "b\n" + markEnd + "b ok\n" + markNext + "\n" + markDone + "\n"
	if err := f.follow(strings.NewReader(out)); err != nil {
		t.Fatal(err)
	}
	if want := `["/src/a/a.test","-test.v"]` + "\n" + `["/src/b/b.test","-test.v"]` + "\n[]\n"; answers.String() != want {
		t.Errorf("answered %q, want %q", answers.String(), want)
	}
	want := strings.ReplaceAll(strings.ReplaceAll(out, "\r", ""), markNext+"\n", "")
	if log.String() != want || shown.String() != want {
		t.Errorf("logged %q, shown %q, want %q", log.String(), shown.String(), want)
	}
	if !f.report.ok() {
		t.Errorf("the report is not ok: %v", f.report.problems)
	}
}

// A machine has the CPUs and the memory of the flags.
func TestEmulator(t *testing.T) {
	args := strings.Join(emulator(parse([]string{"-cpus", "16", "-memory", "4096", "pkg"})), " ")
	if !strings.Contains(args, "-smp 16 -m 4096") {
		t.Errorf("QEMU's arguments are %s, want 16 CPUs and 4096 MiB", args)
	}
	args = strings.Join(emulator(parse([]string{"pkg"})), " ")
	if !strings.Contains(args, "-smp 2 -m 2048") {
		t.Errorf("by default, QEMU's arguments are %s, want 2 CPUs and 2048 MiB", args)
	}
}

// The tests that a machine got before its end did not run, even if it did not say that
// they begin.
func TestFollowToEarlyEnd(t *testing.T) {
	var answers strings.Builder
	f := follower{queue: queueOf("a", "b"), answers: &answers, log: io.Discard, report: &report{}, show: func(string) {}}
	if err := f.follow(strings.NewReader(markNext + "\n")); err != nil {
		t.Fatal(err)
	}
	r := report{done: true}
	r.add(f.report)
	if diff := cmp.Diff([]string{"the machine did not reach its end: a was running"}, r.problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if got := r.failures(); !strings.Contains(got, "did not reach its end") {
		t.Errorf("failures() = %q, want that the machine did not reach its end", got)
	}
}

// A machine that ends before it gets its tests is a problem, but its output counts.
func TestFollowWithoutAnswer(t *testing.T) {
	read, write := io.Pipe()
	read.Close()
	f := follower{queue: queueOf("a"), answers: write, log: io.Discard, report: &report{}, show: func(string) {}}
	if err := f.follow(strings.NewReader(markNext + "\n" + markBegin + "b\n" + markEnd + "b ok\n")); err != nil {
		t.Fatal(err)
	}
	if len(f.report.problems) != 1 || !strings.Contains(f.report.problems[0], "tests of a") || f.report.passed != 1 {
		t.Errorf("got problems %q and %d packages, want one about a and 1", f.report.problems, f.report.passed)
	}
}
