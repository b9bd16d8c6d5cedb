package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// What init prints around the tests.
const (
	markBegin = "rig: begin " // followed by the package
	markEnd   = "rig: end "   // followed by the package and how it ended
	markDone  = "rig: done"
)

// report is how a machine's tests ended.
type report struct {
	elapsed  time.Duration
	passed   int      // packages
	tests    int      // tests that passed, subtests not counted
	skipped  []string // "package Test: reason"
	problems []string // everything that makes the run fail
	done     bool     // init came to its end

	pkg  string // that is running
	last string // line before this one, where a skip's reason stands
}

func (r *report) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// line takes in one line of the tests' output, which is that of -test.v.
func (r *report) line(s string) {
	text := strings.TrimLeft(s, " ")
	switch {
	case strings.HasPrefix(s, markBegin):
		r.pkg = strings.TrimPrefix(s, markBegin)
	case strings.HasPrefix(s, markEnd):
		r.end(strings.TrimPrefix(s, markEnd))
	case s == markDone:
		r.done = true
	case strings.HasPrefix(text, "--- SKIP: "):
		r.skipped = append(r.skipped, fmt.Sprintf("%s %s: %s", r.pkg, testName(text), strings.TrimSpace(r.last)))
	case strings.HasPrefix(text, "--- FAIL: "):
		r.problem("%s %s failed", r.pkg, testName(text))
	case strings.HasPrefix(s, "--- PASS: "):
		r.tests++
	}
	r.last = s
}

// end notes how a package ended: "PKG ok" or "PKG" and what went wrong.
func (r *report) end(s string) {
	pkg, how, _ := strings.Cut(s, " ")
	if how == "ok" {
		r.passed++
	} else {
		r.problem("%s: %s", pkg, how)
	}
	r.pkg = ""
}

// testName returns the name in a line such as "--- FAIL: TestX (0.00s)".
func testName(s string) string {
	return strings.Fields(s)[2]
}

// complaint matches the lines by which the kernel says that something is wrong
// with it.
var complaint = regexp.MustCompile(`WARNING:|BUG:|Oops:|Kernel panic|general protection fault|UBSAN:|blocked for more than`)

// emulated matches a debug exception that only an emulator makes: its flags of the
// processor have bits from 22 on, which are always 0 (Intel SDM, vol. 1, 3.4.3). QEMU
// 7.2 was seen to mistake a pointer for them. The kernel goes on.
var emulated = regexp.MustCompile(`(?m)^.*WARNING:.* exc_debug_kernel.*\n(?:.*\n){0,12}?.* EFLAGS: 0*(?:[4-9a-f]|[1-9a-f][0-9a-f]+)[0-9a-f]{5}\r?$`)

// kernelLog takes in what the kernel wrote to its console.
func (r *report) kernelLog(log string) {
	for line := range strings.Lines(emulated.ReplaceAllString(log, "")) {
		if complaint.MatchString(line) {
			r.problem("the kernel says: %s", strings.TrimSpace(line))
		}
	}
}

// ok reports whether everything ran and nothing went wrong.
func (r *report) ok() bool {
	return r.done && r.passed > 0 && len(r.problems) == 0
}

// print writes the summary of the run.
func (r *report) print(w io.Writer) {
	fmt.Fprintln(w)
	for _, s := range r.skipped {
		fmt.Fprintln(w, "SKIP", s)
	}
	for _, s := range r.problems {
		fmt.Fprintln(w, "FAIL", s)
	}
	if !r.done {
		fmt.Fprintln(w, "FAIL the machine did not reach its end")
	}
	verdict := "ok  "
	if !r.ok() {
		verdict = "FAIL"
	}
	fmt.Fprintf(w, "%s %d packages and %d tests passed, %d skipped, %.1fs\n",
		verdict, r.passed, r.tests, len(r.skipped), r.elapsed.Seconds())
}
