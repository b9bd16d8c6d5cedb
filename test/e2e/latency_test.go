package e2e

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// interval is an interval of testdata/latency.c with the names of the numbers that the
// program prints for it: how many there are, how many do not end, and the bounds of their
// time in ns, "" for none. Those of a recursive function begin with outer_, and are for its
// outermost calls; whole_least is for all. LATENCY stands for the program.
type interval struct {
	name                           string // as in the summary
	count, unfinished, least, most string
	frame                          string // of all stacks
}

// latencyTest has the flags of a run and the intervals that it measures.
type latencyTest struct {
	flags     []string
	long      bool
	intervals []interval
}

var latencyTests = []latencyTest{
	{
		flags: []string{"-e", "uprobe:LATENCY:nap", "-e", "uprobe:LATENCY:recurs*", "-e", "uprobe:LATENCY:jump"},
		intervals: []interval{
			{"uprobe:LATENCY:nap", "naps", "", "nap_least", "nap_most", "nap"},
			{"uprobe:LATENCY:recurs*", "calls", "", "outer_least", "outer_most", "recurse"},
			{"uprobe:LATENCY:jump", "returned", "jumped", "", "", "jump"},
		},
	},
	{
		flags: []string{"-e", "usdt:LATENCY:fulgur:request__start", "--key", "arg0"},
		intervals: []interval{
			{"usdt:LATENCY:fulgur:request__start to usdt:LATENCY:fulgur:request__done", "requests", "unanswered", "request_least", "request_most", "request_start"},
		},
	},
	{
		flags: []string{"-e", "uprobe:LATENCY:jump", "--filter", "arg0 == 0"}, long: true,
		intervals: []interval{{"uprobe:LATENCY:jump", "returned", "", "", "", "jump"}},
	},
	{
		flags: []string{"-e", "usdt:LATENCY:fulgur:request__start", "--until", "uprobe:LATENCY:request_done", "--key", "arg0=arg0"}, long: true,
		intervals: []interval{
			{"usdt:LATENCY:fulgur:request__start to uprobe:LATENCY:request_done", "requests", "unanswered", "request_least", "request_most", "request_start"},
		},
	},
}

var kernelLatencyTests = []latencyTest{
	{
		flags: []string{"-e", "syscalls:sys_enter_write", "--filter", "fd == 77"},
		intervals: []interval{
			{"tracepoint:syscalls:sys_enter_write to tracepoint:syscalls:sys_exit_write", "writes", "", "", "", "main"},
		},
	},
	{
		flags: []string{"-e", "kprobe:vfs_write", "-e", "kprobe:vfs_wri*", "--filter", "count == 4097"},
		intervals: []interval{
			{"kprobe:vfs_write", "writes", "", "", "", "vfs_write"},
			{"kprobe:vfs_wri*", "writes", "", "", "", "vfs_write"},
		},
	},
	{
		flags: []string{"-e", "syscalls:sys_enter_clock_nanosleep", "-U"}, long: true,
		intervals: []interval{
			{"tracepoint:syscalls:sys_enter_clock_nanosleep to tracepoint:syscalls:sys_exit_clock_nanosleep", "sleeps", "", "nap_least", "", "sleep_ns"},
		},
	},
}

// The intervals and their histogram equal the program's own, and their times
// are within its own bounds.
func TestLatency(t *testing.T) {
	testLatency(t, latencyTests)
}

func TestLatencyKernel(t *testing.T) {
	testenv.EveryKernel(t)
	testLatency(t, kernelLatencyTests)
}

func testLatency(t *testing.T, tests []latencyTest) {
	t.Helper()
	testenv.Root(t)
	latency := compile(t, "latency.c", "latency", "-pthread")
	for _, test := range tests {
		t.Run(strings.Join(test.flags[1:], " "), func(t *testing.T) {
			if strings.HasPrefix(test.flags[1], "k") && !hasKprobes(t) {
				testenv.Unsupported(t, "the kernel has no kprobes")
			}
			if test.long {
				testenv.Long(t)
			}
			out := filepath.Join(t.TempDir(), "out.folded")
			args := []string{"latency", "-o", out}
			for _, flag := range test.flags {
				args = append(args, strings.ReplaceAll(flag, "LATENCY", latency))
			}
			r := fulgur(t, append(args, "--", latency)...)
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			own, stacks := numbers(t, r.stdout), readFolded(t, out)
			for _, i := range test.intervals {
				i.name = strings.ReplaceAll(i.name, "LATENCY", latency)
				of := stacks
				if len(test.intervals) > 1 {
					of = map[string]int{}
					for stack, n := range stacks {
						if strings.HasSuffix(stack, "["+strings.ReplaceAll(i.name, "LATENCY", latency)+"]") {
							of[stack] = n
						}
					}
				}
				i.check(t, r.stderr, of, own)
			}
			if strings.Contains(r.stderr, "not tracked") {
				t.Errorf("intervals were lost: %s", r.stderr)
			}
		})
	}
}

// check compares the summary and the stacks with the program's own numbers.
func (i interval) check(t *testing.T, summary string, stacks, own map[string]int) {
	t.Helper()
	numbersOf := func(text, expression string) (sum int) {
		for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		return sum
	}
	_, distribution, found := strings.Cut(summary, "  "+i.name+"\n")
	if !found {
		t.Fatalf("no distribution of %s:\n%s", i.name, summary)
	}
	average, histogram, _ := strings.Cut(distribution, "\n")
	if end := regexp.MustCompile(`(?m)^ *\S+:`).FindStringIndex(histogram); end != nil {
		histogram = histogram[:end[0]] // the next pair begins
	}
	n, want := numbersOf(average, `count (\d+),`), hits(own[i.count], 1, summary)
	if !want.Has(n) || n == 0 {
		t.Errorf("%s: got %d intervals, want %s (%s)\n%s", i.name, n, want, i.count, summary)
	}
	if all := numbersOf(histogram, `(?m) (?:s|ms|µs|ns) +(\d+) \|`); all != n {
		t.Errorf("%s: got a histogram of %d intervals, want %d\n%s", i.name, all, n, summary)
	}
	missing := own[i.count] - n
	if n := numbersOf(summary, regexp.QuoteMeta(i.name)+`: (\d+) intervals? began but did not end`); n < own[i.unfinished]-missing || n > own[i.unfinished]+missing {
		t.Errorf("%s: got %d unfinished intervals, want %d\n%s", i.name, n, own[i.unfinished], summary)
	}
	total, _, rounding := timeAfter(t, average, "total")
	if strings.HasPrefix(i.most, "outer_") { // the stacks have the time of a call once
		if missing == 0 && total+rounding < float64(own["whole_least"]) {
			t.Errorf("%s: got %v ns, want the sum of all calls, at least %d", i.name, total, own["whole_least"])
		}
		total, rounding = float64(sum(stacks)*1000), 0
	}
	if missing == 0 && total+rounding < float64(own[i.least]) || i.most != "" && total-rounding > float64(own[i.most]) {
		t.Errorf("%s: got %v ns, want %d to %d", i.name, total, own[i.least], own[i.most])
	}
	// Each stack is rounded to microseconds.
	if apart := math.Abs(float64(sum(stacks)*1000) - total); apart > float64(own[i.count]*1000)+rounding {
		t.Errorf("%s: got a total of %v ns, want the sum of the stacks, %d us", i.name, total, sum(stacks))
	}
	if count(stacks, i.frame) == 0 {
		t.Errorf("%s: no stack has %s: %v", i.name, i.frame, stacks)
	}
}

// Pairs that cannot be measured are refused with a hint, before anything is attached.
func TestLatencyRefuses(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	latency := compile(t, "latency.c", "latency", "-pthread")
	for _, test := range []struct {
		flags []string
		want  string
	}{
		{[]string{"-e", "uprobe:" + latency + ":nap", "--until", "uretprobe:" + program(t) + ":runtime.memmove"}, "the end of a function in assembly is unknown"},
		{[]string{"-e", "sched:sched_switch"}, "has no known end: give the event that ends the interval with --until"},
		{[]string{"-e", "uretprobe:" + latency + ":nap"}, "is the end of calls: choose uprobe:" + latency + ":nap"},
		{[]string{"-e", "uprobe:" + latency + ":nap+4"}, "is not the entry of a function"},
		{[]string{"-e", "uprobe:" + latency + ":nap", "--key", "arg0"}, "--key is for two events, with --until"},
		{[]string{"-e", "usdt:" + latency + ":fulgur:request__done"}, "has no known end"},
		{[]string{"-e", "usdt:" + latency + ":fulgur:request__start", "--key", "arg0="}, "give tid, a field of both events"},
		{[]string{"-e", "usdt:" + latency + ":fulgur:request__start", "--key", "arg7"}, "arg7"},
		{[]string{"-e", "sched:sched_wakeup", "--until", "sched:sched_switch", "--key", "pid"}, "the fields are prev_comm"},
		{[]string{"-e", "sched:sched_wakeup", "-e", "sched:sched_waking", "--until", "sched:sched_switch"}, "--until is the end of one event"},
	} {
		r := fulgur(t, append(append([]string{"latency"}, test.flags...), "1")...)
		if r.code != 2 || !strings.Contains(r.stderr, test.want) {
			t.Errorf("%s: got code %d and %q, want 2 and %q", test.flags, r.code, r.stderr, test.want)
		}
	}
}

// Each event that a pattern matches has its own intervals in the summary, and is on top of the
// stacks.
func TestLatencyMatches(t *testing.T) {
	testenv.Root(t)
	needCookies(t)
	events := compile(t, "events.c", "events")
	out := filepath.Join(t.TempDir(), "out.folded")
	r := fulgur(t, "latency", "-o", out, "-e", "syscalls:sys_enter_*", "--", events)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	stacks, own := readFolded(t, out), numbers(t, r.stdout)
	for name, want := range map[string]int{"write": own["writes"] + 1, "prctl": own["renames"]} {
		event := "tracepoint:syscalls:sys_enter_" + name
		got, row := 0, regexp.MustCompile(fmt.Sprintf(`(?m)^ +(\d+) +[\d.]+ .?s  %s$`, event)).FindStringSubmatch(r.stderr)
		if row != nil {
			got, _ = strconv.Atoi(row[1])
		}
		if want := hits(want, 1, r.stderr); !want.Has(got) || got == 0 || count(stacks, "["+event+"]") == 0 {
			t.Errorf("%s: got %d intervals, want %s\n%s", name, got, want, r.stderr)
		}
	}
}

// Without the kernel's part of stacks, nothing else has the name of the kernel's function.
func TestLatencyMatchesOfUsers(t *testing.T) {
	testenv.Root(t)
	needCookies(t)
	if !hasKprobes(t) {
		testenv.Unsupported(t, "the kernel has no kprobes")
	}
	events := compile(t, "events.c", "events")
	out := filepath.Join(t.TempDir(), "out.folded")
	r := fulgur(t, "latency", "-U", "-o", out, "-e", "kprobe:vfs_*write", "--", events)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	if stacks := readFolded(t, out); count(stacks, "[kprobe:vfs_write]") == 0 {
		t.Errorf("no stack has the function: %v\n%s", stacks, r.stderr)
	}
}
