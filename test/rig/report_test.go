package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const passingOutput = `rig: begin internal/a
=== RUN   TestOne
=== RUN   TestOne/sub
--- PASS: TestOne (0.01s)
    --- PASS: TestOne/sub (0.00s)
=== RUN   TestTwo
    a_test.go:7: needs the program perf
--- SKIP: TestTwo (0.00s)
=== RUN   TestThree
=== RUN   TestThree/sub
    a_test.go:9: needs root
=== NAME  TestThree
    a_test.go:12: done
=== RUN   TestThree/last
    a_test.go:14: takes long
--- PASS: TestThree (0.00s)
    --- SKIP: TestThree/sub (0.00s)
    --- PASS: TestThree/other (0.00s)
    --- SKIP: TestThree/last (0.00s)
PASS

rig: end internal/a ok
`

// debugException is the kernel's message about a debug exception with the given flags.
func debugException(flags string) string {
	return "[ 85.3] WARNING: CPU: 1 PID: 444 at arch/x86/kernel/traps.c:1120 exc_debug_kernel+0xca/0x160\n" +
		"[ 85.3] Modules linked in: branchpmu(OE)\n" +
		"[ 85.4] RIP: 0010:exc_debug_kernel+0xca/0x160\n" +
		"[ 85.4] RSP: 0000:fffffe064eed6f28 EFLAGS: " + flags + "\r\n"
}

func TestReport(t *testing.T) {
	skipped := []skip{
		{"internal/a", "TestTwo", "needs the program perf"},
		{"internal/a", "TestThree/sub", "needs root"},
		{"internal/a", "TestThree/last", "takes long"},
	}
	for _, tc := range []struct {
		name, output, kernelLog string
		ok                      bool
		problems                []string
	}{
		{name: "pass", output: passingOutput + markDone + "\n", kernelLog: "[ 0.1] mtrr: odd settings\n", ok: true},
		{name: "no end", output: passingOutput},
		{
			name:     "test fails",
			output:   passingOutput + "rig: begin internal/b\n--- FAIL: TestX (0.00s)\n    --- FAIL: TestX/y (0.00s)\nFAIL\n\nrig: end internal/b exit status 1\n" + markDone + "\n",
			problems: []string{"internal/b TestX failed", "internal/b TestX/y failed", "internal/b: exit status 1"},
		},
		{
			name:     "package dies",
			output:   passingOutput + "rig: begin internal/b\n\nrig: end internal/b killed by killed\n" + markDone + "\n",
			problems: []string{"internal/b: killed by killed"},
		},
		{
			name:      "kernel warns",
			output:    passingOutput + markDone + "\n",
			kernelLog: "[ 3.1] WARNING: CPU: 1 PID: 90 at kernel/events/core.c:1\n[ 3.2] RIP: 0010:f+0x1/0x2\n",
			problems:  []string{"the kernel says: [ 3.1] WARNING: CPU: 1 PID: 90 at kernel/events/core.c:1"},
		},
		{
			name:      "files do not fit into memory",
			output:    passingOutput + markDone + "\n",
			kernelLog: "[ 13.5] Initramfs unpacking failed: write error\n",
			problems:  []string{"the kernel says: [ 13.5] Initramfs unpacking failed: write error"},
		},
		{
			name:      "flags that no processor has",
			output:    passingOutput + markDone + "\n",
			kernelLog: debugException("97389002"),
			ok:        true,
		},
		{
			name:      "a debug exception",
			output:    passingOutput + markDone + "\n",
			kernelLog: debugException("00250102"),
			problems:  []string{"the kernel says: [ 85.3] WARNING: CPU: 1 PID: 444 at arch/x86/kernel/traps.c:1120 exc_debug_kernel+0xca/0x160"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r report
			for line := range strings.Lines(tc.output) {
				r.line(strings.TrimSuffix(line, "\n"))
			}
			r.kernelLog(tc.kernelLog)
			if r.ok() != tc.ok {
				t.Errorf("ok() = %v, want %v", r.ok(), tc.ok)
			}
			if diff := cmp.Diff(tc.problems, r.problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(skipped, r.skipped, cmp.AllowUnexported(skip{})); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
			if r.tests != 2 {
				t.Errorf("got %d passed tests, want 2", r.tests)
			}
		})
	}
}

// A run without tests is not a success.
func TestNoTests(t *testing.T) {
	var r report
	r.line(markDone)
	if r.ok() {
		t.Error("a run without tests is ok, want a failure")
	}
}

// A report of several machines has the results of all.
func TestAddReports(t *testing.T) {
	one, two := &report{}, &report{}
	for line := range strings.Lines(passingOutput + markDone + "\n") {
		one.line(strings.TrimSuffix(line, "\n"))
		two.line(strings.TrimSuffix(strings.ReplaceAll(line, "internal/a", "internal/b"), "\n"))
	}
	two.problem("a problem")
	got := report{done: true}
	got.add(one)
	if !got.ok() {
		t.Errorf("the report of the first machine is not ok: %v", got.problems)
	}
	got.add(two)
	var text strings.Builder
	got.print(&text)
	want := `SKIP   2: needs root (internal/a TestThree/sub, internal/b TestThree/sub)
SKIP   2: needs the program perf (internal/a TestTwo, internal/b TestTwo)
SKIP   2: takes long (internal/a TestThree/last, internal/b TestThree/last)
FAIL a problem
FAIL 2 packages and 4 tests passed, 6 skipped, 0.0s in 2 machines
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
