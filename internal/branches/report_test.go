package branches

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fulgur/internal/branches/stepping"
)

func TestReportText(t *testing.T) {
	r := &report{
		Samples: 2, Records: 64, InsideShare: 0.75, MispredictedShare: 0.0125,
		Lost:    []cause{{"records lost: the kernel could not deliver them", 7}},
		LeftOut: []cause{{"kernel branch records", 3}},
		Binaries: []binaryReport{
			{
				Binary: "bin/app", BuildID: "0123", Profile: "my app.preagg", Branches: 48, Traces: 1, Taken: 40,
				ExecutableBytes: 400, TakenByExecutable: 0.1, UnseenShare: 0.0123, Warnings: []string{"too few"},
				Next: [][]string{{"perf2bolt", "-p", "my app.preagg"}},
			},
			{Binary: "new\nline", Profile: "-", Branches: 2, Traces: 2, TakenByExecutable: 123.4},
		},
		Warnings: []string{"beware"},
	}
	const want = `2 samples, 64 branch records
  7 records lost: the kernel could not deliver them
  left out: 3 kernel branch records
  75.0 % of the branches in the profiled files, 1.25 % of them mispredicted

bin/app (build ID 0123)
  profile: my app.preagg
  48 branch records of 1 different trace
  0.1 taken branches for each byte of machine code (1 or more is sufficient)
  the profile has not seen about 1.2 % of the execution yet
  warning: too few

new\nline (no build ID)
  2 branch records of 2 different traces
  123 taken branches for each byte of machine code (1 or more is sufficient)
  the profile has not seen about 0 % of the execution yet

warning: beware

next, for each binary, for example:
  perf2bolt -p 'my app.preagg'
`
	if got := r.text(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// The report says why breakpoints replaced uprobes, and what their hits cost.
func TestReportCounted(t *testing.T) {
	lost := 0.0478
	for name, test := range map[string]struct {
		counting countingReport
		want     string
	}{
		"uprobes": {
			countingReport{Outcomes: 1000, Jumps: 1, Windows: 2, OpenSeconds: 0.01, LongestStallSeconds: 0.0042, Overhead: &lost},
			"  counted 1000 outcomes of 1 jump in 2 windows of 5.0 ms; the target lost 4.8 % of its progress; longest stall of a thread: 4.2ms\n",
		},
		"breakpoints": {
			countingReport{Outcomes: 1000, Jumps: 10, Overhead: &lost, Breakpoints: &breakpointReport{Windows: 20, Hits: 1100, HitCostSeconds: 4.93e-6, Taken: 1}},
			"  counted 1000 outcomes of 10 jumps; the target lost 4.8 % of its progress\n" +
				"  hardware breakpoints: 1100 hits in 20 windows, 4.9µs each\n" +
				"  1 window had too few breakpoints, or none: other tools used them\n",
		},
		"fallback": {
			countingReport{Fallback: "uprobes stalled a thread for up to 12ms", Windows: 1},
			"  counted 0 outcomes of 0 jumps in 1 window of 0.0 ms; longest stall of a thread: 0s\n" +
				"  hardware breakpoints instead of uprobes: uprobes stalled a thread for up to 12ms\n",
		},
		"refused": {
			countingReport{Refused: 2, RefusedShare: 0.0004},
			"  counted 0 outcomes of 0 jumps\n" +
				"  2 jumps not counted, about 0.0 % of the executed branches: they cannot have probes\n",
		},
		"no breakpoints": {
			countingReport{Refused: 1, RefusedShare: 0.0951, NoBreakpoints: "hardware breakpoints have no effect on this machine"},
			"  counted 0 outcomes of 0 jumps\n" +
				"  1 jump not counted, about 9.5 % of the executed branches: unfit for uprobes, and hardware breakpoints have no effect on this machine\n",
		},
	} {
		var got strings.Builder
		if test.counting.text(&got); got.String() != test.want {
			t.Errorf("%s: got:\n%s\nwant:\n%s", name, got.String(), test.want)
		}
	}
}

// The report shows the stepped threads, the processes that could not be stepped, and the
// state of the binary.
func TestReportStepped(t *testing.T) {
	r := &report{
		Samples: 3, Records: 96, InsideShare: 0.5, MispredictedShare: 0.5,
		Stepping: newSteppingReport(stepping.Stats{
			Threads: 1, Bursts: 4, Steps: 1000, Full: 3, Signal: 1, Interrupted: 1,
			LongestHold: 12345 * time.Microsecond, MaxSlowdown: 0.0987,
		}),
		Refused: slices.Repeat([]string{"cannot step process 5: is traced"}, 7),
		Binaries: []binaryReport{{
			Binary: "app", BuildID: "0123", Branches: 48, Taken: 48, Traces: 9, TakenByExecutable: 2,
			Optimized: "app.bolt", Findings: []string{"taken branches -10.0%"},
		}},
	}
	const want = `3 samples, 96 branch records
  50.0 % of the branches in the profiled files
  stepped 1 thread through 1000 instructions, in 4 bursts of at most 12.3ms, including waits for a CPU; maximum slowdown of a thread: 9.9 %
  bursts ended: 3 complete, 1 at a signal
  1 system call of the target returned EINTR because of stepping
  cannot step process 5: is traced
  cannot step process 5: is traced
  cannot step process 5: is traced
  cannot step process 5: is traced
  cannot step process 5: is traced
  and 2 more refusals

app (build ID 0123)
  48 branch records of 9 different traces
  2 taken branches for each byte of machine code (1 or more is sufficient)
  the profile has not seen about 0 % of the execution yet
  optimized: app.bolt
    taken branches -10.0%
`
	if got := r.text(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestSuggestOthers(t *testing.T) {
	const outside = "most of the %s are outside of the profiled file, for example in libraries: choose another file with the binary"
	for name, test := range map[string]struct {
		report  report
		options ProfileOptions
		want    string
	}{
		"a library works":   {report{located: true, InsideShare: 0.1}, ProfileOptions{}, fmt.Sprintf(outside, "branches") + ", or all with all binaries"},
		"counted":           {report{located: true, InsideShare: 0.1, Counting: &countingReport{}}, ProfileOptions{}, fmt.Sprintf(outside, "samples")},
		"nothing counted":   {report{located: true, Counting: &countingReport{}}, ProfileOptions{}, ""},
		"enough":            {report{located: true, InsideShare: 0.2}, ProfileOptions{}, ""},
		"nothing but drops": {report{Samples: 1, Records: 9}, ProfileOptions{}, ""},
		"all binaries":      {report{located: true}, ProfileOptions{AllBinaries: true}, ""},
		"the kernel alone":  {report{located: true}, ProfileOptions{Kernel: true}, ""},
	} {
		test.report.suggestOthers(&test.options)
		if got := strings.Join(test.report.Warnings, "\n"); got != test.want {
			t.Errorf("%s: got warnings %q, want %q", name, got, test.want)
		}
	}
}

func TestTimeLeft(t *testing.T) {
	for _, test := range []struct {
		sufficiency float64
		elapsed     time.Duration
		want        string
	}{
		{0, time.Second, ""},
		{1, time.Second, ""},
		{2, time.Second, ""},
		{0.99, time.Second, "1 s"},
		{0.5, 90 * time.Second, "90 s"},
		{0.1, time.Minute, "9 minutes"},
		{0.001, time.Minute, "17 hours"},
		{1e-5, time.Minute, "69 days"},
	} {
		if got := timeLeft(test.sufficiency, test.elapsed); got != test.want {
			t.Errorf("%v after %v: got %q, want %q", test.sufficiency, test.elapsed, got, test.want)
		}
	}
}

func TestTwoDigits(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 0.0000943: "0.000094", 0.1: "0.1", 1: "1", 1.26: "1.3", 9.99: "10", 123.4: "123",
	} {
		if got := twoDigits(x); got != want {
			t.Errorf("%g: got %s, want %s", x, got, want)
		}
	}
}

func TestRemedy(t *testing.T) {
	for want, r := range map[string]binaryReport{
		"measure 4 times as long (2 minutes), or merge as many": {Taken: 1, TakenByExecutable: 0.25, SufficientAfter: 120},
		"measure 10 times as long":                              {Taken: 1, TakenByExecutable: 0.1},
		"measure 1.3 times as long":                             {Taken: 1, TakenByExecutable: 0.75},
		"measure 1.1 times as long":                             {Taken: 1, TakenByExecutable: 0.98},
		"no branch was taken in it":                             {},
	} {
		if got := r.remedy(); !strings.HasPrefix(got, want) {
			t.Errorf("got remedy %q, want %q", got, want)
		}
	}
}
