package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Markers in init's output.
const (
	markNext  = "rig: next"   // asks for the command of the next tests
	markBegin = "rig: begin " // followed by the package
	markEnd   = "rig: end "   // followed by the package and how it ended
	markDone  = "rig: done"
	// Between these is a file in base64.
	markFile    = "rig: file " // followed by its path
	markFileEnd = "rig: end of file"
)

// report is the result of a machine's tests, or of several machines'.
type report struct {
	machines int // that add has added
	elapsed  time.Duration
	passed   int // packages
	tests    int // tests that passed, subtests not counted
	skipped  []skip
	problems []string // everything that makes the run fail
	done     bool     // init reached its end

	pkg  string            // running package, or ""
	test string            // test that the next lines belong to
	last map[string]string // each test's last line, which has the reason of a skip
}

// skip is a test that was skipped.
type skip struct{ pkg, test, reason string }

func (r *report) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// position matches the position at the beginning of a test's log line.
var position = regexp.MustCompile(`^[^ :]+\.go:\d+: `)

// line handles a line of the tests' output, in the format of -test.v.
func (r *report) line(s string) {
	text := strings.TrimLeft(s, " ")
	switch {
	case strings.HasPrefix(s, markBegin):
		r.pkg, r.test, r.last = strings.TrimPrefix(s, markBegin), "", map[string]string{}
	case strings.HasPrefix(s, markEnd):
		r.end(strings.TrimPrefix(s, markEnd))
	case s == markDone:
		r.done = true
	case strings.HasPrefix(s, "=== "):
		// Any kind of line names the test of the next lines.
		if f := strings.Fields(s); len(f) == 3 {
			r.test = f[2]
		}
	case strings.HasPrefix(text, "--- SKIP: "):
		name := testName(text)
		r.skipped = append(r.skipped, skip{r.pkg, name, position.ReplaceAllString(r.last[name], "")})
	case strings.HasPrefix(text, "--- FAIL: "):
		r.problem("%s %s failed", r.pkg, testName(text))
	case strings.HasPrefix(text, "--- PASS: "):
		if text == s { // no subtest
			r.tests++
		}
	case r.last != nil && text != "":
		r.last[r.test] = text
	}
}

// end handles the result of a package: "PKG ok", or "PKG" and the problem.
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

// complaint matches the kernel's messages about its own errors.
var complaint = regexp.MustCompile(`WARNING:|BUG:|Oops:|Kernel panic|general protection fault|UBSAN:|blocked for more than|Initramfs unpacking failed`)

// emulated matches a debug exception that only an emulator raises: in its flags,
// bits from 22 on are set, which are always 0 (Intel SDM, vol. 1, 3.4.3). QEMU 7.2
// sometimes mistakes a pointer for the flags. The kernel continues.
var emulated = regexp.MustCompile(`(?m)^.*WARNING:.* exc_debug_kernel.*\n(?:.*\n){0,12}?.* EFLAGS: 0*(?:[4-9a-f]|[1-9a-f][0-9a-f]+)[0-9a-f]{5}\r?$`)

// kernelLog handles the kernel's console output.
func (r *report) kernelLog(log string) {
	for line := range strings.Lines(emulated.ReplaceAllString(log, "")) {
		if complaint.MatchString(line) {
			r.problem("the kernel says: %s", strings.TrimSpace(line))
		}
	}
}

// add adds the report of another machine that has ended.
func (r *report) add(m *report) {
	r.machines++
	r.passed += m.passed
	r.tests += m.tests
	r.skipped = append(r.skipped, m.skipped...)
	r.problems = append(r.problems, m.problems...)
	switch {
	case m.done:
		return
	case m.pkg != "":
		r.problem("the machine did not reach its end: %s was running", m.pkg)
	default:
		r.problem("the machine did not reach its end")
	}
	r.done = false
}

// ok reports whether everything ran and succeeded.
func (r *report) ok() bool {
	return r.done && r.passed > 0 && len(r.problems) == 0
}

// failures describes the number of failures.
func (r *report) failures() string {
	if !r.done {
		return "the machine did not reach its end"
	}
	return fmt.Sprintf("%d failures", len(r.problems))
}

// print writes the summary of the run: skipped tests by their reasons, most frequent
// first, then failures.
func (r *report) print(w io.Writer) {
	tests := map[string][]string{}
	for _, s := range r.skipped {
		tests[s.reason] = append(tests[s.reason], s.pkg+" "+s.test)
	}
	for _, reason := range slices.SortedFunc(maps.Keys(tests), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(tests[b]), len(tests[a])), strings.Compare(a, b))
	}) {
		fmt.Fprintf(w, "SKIP %3d: %s (%s)\n", len(tests[reason]), reason, few(tests[reason]))
	}
	for _, s := range r.problems {
		fmt.Fprintln(w, "FAIL", s)
	}
	verdict, machines := "ok  ", ""
	if !r.ok() {
		verdict = "FAIL"
	}
	if r.machines > 1 {
		machines = fmt.Sprintf(" in %d machines", r.machines)
	}
	fmt.Fprintf(w, "%s %d packages and %d tests passed, %d skipped, %.1fs%s\n",
		verdict, r.passed, r.tests, len(r.skipped), r.elapsed.Seconds(), machines)
}

// few returns the first names of a list.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s, and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
