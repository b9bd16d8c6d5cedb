package e2e

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"fulgur/internal/capture/probe"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// numbers parses lines of a name and a number.
func numbers(t *testing.T, text string) map[string]int {
	t.Helper()
	values := map[string]int{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatalf("not a number: %q", line)
		}
		values[name] = n
	}
	return values
}

// sum returns the sum of folded stacks.
func sum(stacks map[string]int) (all int) {
	for _, n := range stacks {
		all += n
	}
	return all
}

// hasKprobes reports whether the kernel has kprobes, as those of the rig have.
func hasKprobes(t *testing.T) bool {
	t.Helper()
	testenv.OneKernel(t)
	_, err := os.Stat("/sys/bus/event_source/devices/kprobe")
	return err == nil
}

// hasCookies reports whether programs can know at which point they run.
func hasCookies(t *testing.T) bool {
	t.Helper()
	kernel, err := probe.NewKernel(btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	has, err := kernel.HasHelper("bpf_get_attach_cookie")
	if err != nil {
		t.Fatal(err)
	}
	return has
}

// needCookies skips the test on kernels where programs cannot know at which point they run.
func needCookies(t *testing.T) {
	t.Helper()
	if !hasCookies(t) {
		testenv.Unsupported(t, "the kernel has no attach cookies (Linux 5.15)")
	}
}

// Every kind of event has exactly the counts of the program itself. Programs that unwind by
// frame pointers load faster on old kernels; at the entry of a function they find its caller.
func TestCount(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	events := compile(t, "events.c", "events")
	kinds := map[string]string{ // to the program's name of the count
		"uprobe:" + events + ":work":          "calls",
		"uprobe:" + events + ":caller_*":      "callers",
		"uretprobe:" + events + ":work":       "calls",
		"usdt:" + events + ":fulgur:tick":     "ticks",
		"tracepoint:syscalls:sys_enter_write": "writes",
	}
	if hasKprobes(t) {
		kinds["kprobe:vfs_write"] = "writes"
		kinds["kprobe:vfs_wri*"] = "writes"
		kinds["kretprobe:vfs_write"] = "writes"
	}
	out := filepath.Join(t.TempDir(), "out.folded")
	args := []string{"count", "-o", out, "--unwind", "fp"}
	for event := range kinds {
		args = append(args, "-e", event)
	}
	r := fulgur(t, append(args, "--", events)...)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	stacks, own := readFolded(t, out), numbers(t, r.stdout)
	own["writes"]++ // of the numbers
	for event, name := range kinds {
		if got, want := count(stacks, "["+event+"]"), hits(own[name], 1, r.stderr); !want.Has(got) {
			t.Errorf("%s: got %d hits, want %s\n%s", event, got, want, r.stderr)
		}
	}
	for stack, n := range stacks {
		if strings.HasSuffix(stack, ";[uprobe:"+events+":work]") && !strings.Contains(stack, ";caller_") {
			t.Errorf("the caller is not in the stack of %d hits: %s", n, stack)
		}
	}
}

// A function jumps to its rarely executed part, whose symbol may match a pattern. It has no caller
// at the top of the stack, and a uretprobe there would change other data of the program.
func TestCountParts(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	cold := testenv.Compile(t, "cold", "gcc", "-O2", "-fno-omit-frame-pointer", "testdata/cold.c")
	const callers = ";main;caller;"
	for _, test := range []struct {
		args []string
		want map[string]int // hits of the ends of stacks; nil if the event is refused
	}{
		{[]string{"count", "-e", "uprobe:" + cold + ":work*"}, map[string]int{callers + "work": 100}},
		{[]string{"count", "-e", "uprobe:" + cold + ":work.cold"}, map[string]int{callers + "work.cold": 50}},
		{[]string{"count", "-e", "uretprobe:" + cold + ":work.cold"}, nil},
		{[]string{"latency", "-e", "uprobe:" + cold + ":work.cold"}, nil},
	} {
		out := filepath.Join(t.TempDir(), "out.folded")
		r := fulgur(t, append(test.args, "--unwind", "fp", "-o", out, "--", cold)...)
		if test.want == nil {
			if r.code != 2 || !strings.Contains(r.stderr, "work.cold: it is a part of a function") {
				t.Errorf("%s: got code %d and %q, want a refusal", test.args, r.code, r.stderr)
			}
			continue
		}
		got := map[string]int{}
		for stack, n := range readFolded(t, out) {
			if i := strings.LastIndex(stack, callers); i >= 0 {
				stack = stack[i:]
			}
			got[stack] += n
		}
		if !maps.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v\n%s", test.args, got, test.want, r.stderr)
		}
	}
}

// eventTest is an event of testdata/events.c, for which EVENTS stands.
type eventTest struct {
	flags []string
	want  string // name of the number that the program prints
	frame string // of all stacks
	// probe is bpftrace's event, with its condition, and action what it does at each hit. They are
	// empty if another test has the same for bpftrace.
	probe, action string
}

var eventTests = []eventTest{
	{[]string{"-e", "uprobe:EVENTS:work"}, "calls", "run", "uprobe:EVENTS:work", "count()"},
	{[]string{"-e", "uprobe:EVENTS:work", "--weight", "arg0"}, "sum", "work", "uprobe:EVENTS:work", "sum(arg0)"},
	{[]string{"-e", "uprobe:EVENTS:work", "--filter", `arg1 == "beta"`}, "betas", "caller_two", `uprobe:EVENTS:work /str(arg1) == "beta"/`, "count()"},
	{[]string{"-e", "uprobe:EVENTS:caller_*"}, "callers", "run", "uprobe:EVENTS:caller_*", "count()"},
	{[]string{"-e", "uprobe:EVENTS:caller_???", "--filter", "arg0 >= 0 || arg0 == -5"}, "callers", "run", "", ""},
	// bpftrace replaces the return address, so these stacks end at the function.
	{[]string{"-e", "uretprobe:EVENTS:work"}, "calls", "work", "uretprobe:EVENTS:work", "count()"},
	{[]string{"-e", "uretprobe:EVENTS:work", "--weight", "retval", "--filter", "retval > 0"}, "returns", "work", "uretprobe:EVENTS:work", "sum(retval)"},
	{[]string{"-e", "usdt:EVENTS:fulgur:tick"}, "ticks", "tick", "usdt:EVENTS:fulgur:tick", "count()"},
	{[]string{"-e", "usdt:EVENTS:ful*:t?ck", "--weight", "arg0"}, "tick_sum", "tick", "usdt:EVENTS:fulgur:tick", "sum(arg0)"},
	{[]string{"-e", "usdt:EVENTS:fulgur:tick", "--filter", "!(arg1 != 1) && arg2 == 7"}, "odd", "tick", "usdt:EVENTS:fulgur:tick /arg1 == 1/", "count()"},
	{[]string{"-e", "tracepoint:syscalls:sys_enter_write", "--filter", "fd == 77"}, "writes", "run", "tracepoint:syscalls:sys_enter_write /args->fd == 77/", "count()"},
	{[]string{"-e", "syscalls:sys_enter_write", "--weight", "field:count", "--filter", "fd == 77"}, "written", "run", "tracepoint:syscalls:sys_enter_write /args->fd == 77/", "sum(args->count)"},
	{[]string{"-e", "syscalls:sys_exit_write", "--weight", "ret", "--filter", "ret == 4097"}, "written", "run", "tracepoint:syscalls:sys_exit_write /args->ret == 4097/", "sum(args->ret)"},
	{[]string{"-e", "syscalls:sys_enter_openat", "--filter", `dfd == -100 && filename == "/nonexistent/fulgur"`}, "opens", "run", "", ""},
	{[]string{"-e", "syscalls:sys_*", "--weight", "count", "--filter", "fd == 77"}, "written", "run", "", ""},
	{[]string{"-e", "syscalls:sys_exit_*", "--filter", "ret == 4097"}, "writes", "run", "", ""},
	{[]string{"-e", "task:task_rename", "--filter", `newcomm == "renamed"`}, "renames", "run", `tracepoint:task:task_rename /args->newcomm == "renamed"/`, "count()"},
	{[]string{"-e", "kprobe:vfs_write", "--filter", "count == 4097"}, "writes", "vfs_write", "kprobe:vfs_write /arg2 == 4097/", "count()"},
	{[]string{"-e", "kprobe:vfs_write", "--weight", "arg2", "--filter", "count == 4097"}, "written", "run", "", ""},
	{[]string{"-e", "kretprobe:vfs_write", "--weight", "retval", "--filter", "retval == 4097"}, "written", "run", "kretprobe:vfs_write /retval == 4097/", "sum(retval)"},
	{[]string{"-e", "kprobe:vfs_wri*", "--filter", "arg2 == 4097"}, "writes", "vfs_write", "", ""},
}

// The sums and the hits that pass a filter equal the program's own, and bpftrace's, in one run of
// the program.
func TestCountFields(t *testing.T) {
	testenv.Root(t)
	events := compile(t, "events.c", "events")
	pid, ask := serve(t, events)
	tests, ran := slices.Clone(eventTests), map[string]bool{}
	tests = slices.DeleteFunc(tests, func(test eventTest) bool {
		if strings.HasPrefix(test.flags[1], "k") && !hasKprobes(t) {
			t.Logf("%s: the kernel has no kprobes", test.flags[1])
			return true
		}
		if test.flags[1] == "syscalls:sys_*" && !hasCookies(t) {
			t.Logf("%s: the fields are in two places, and the kernel has no attach cookies", test.flags[1])
			return true
		}
		// The kernels differ in how they attach each kind of event, not in its fields.
		kind, _, _ := strings.Cut(test.flags[1], ":")
		again := ran[kind]
		ran[kind] = true
		return again && testenv.BriefInVM()
	})
	here := func(text string) string { return strings.ReplaceAll(text, "EVENTS", events) }
	var theirs func() map[string]int
	if _, err := exec.LookPath("bpftrace"); err == nil {
		var program strings.Builder
		for i, test := range tests {
			if test.probe == "" {
				continue
			}
			probe, condition, _ := strings.Cut(here(test.probe), " /")
			if condition = strings.TrimSuffix(condition, "/"); condition != "" {
				condition = " && " + condition
			}
			fmt.Fprintf(&program, "%s /pid == %d%s/ { @m%d = %s; }\n", probe, pid, condition, i, test.action)
		}
		theirs = trace(t, program.String())
	}
	wants := make([]stat.Range, len(tests))
	batch := len(tests)
	if testenv.InVM() { // it has little memory
		batch = 6
	}
	before := map[string]int{}
	for i := 0; i < len(tests); i += batch {
		before = countBatch(t, tests[i:min(i+batch, len(tests))], wants[i:], events, pid, ask, before)
	}
	var peers map[string]int
	if theirs != nil {
		peers = theirs()
	}
	runs := (len(tests) + batch - 1) / batch // of the program, all of which bpftrace sees
	t.Run("bpftrace", func(t *testing.T) {
		needBpftrace(t)
		for i, test := range tests {
			want := stat.Range{Low: wants[i].Low * runs, High: wants[i].High * runs}
			if peer := peers[fmt.Sprintf("m%d", i)]; test.probe != "" && !want.Has(peer) {
				t.Errorf("%s: bpftrace has %d, want %s", test.probe, peer, want)
			}
		}
	})
}

// countBatch counts events of the same run of a program, and stores the wanted counts. before has
// the program's numbers before the run, and the result those after it.
func countBatch(t *testing.T, tests []eventTest, wants []stat.Range, events string, pid int, ask func(string) map[string]int, before map[string]int) (after map[string]int) {
	t.Helper()
	running, outs := make([]*exec.Cmd, len(tests)), make([]string, len(tests))
	for i, test := range tests {
		outs[i] = filepath.Join(t.TempDir(), "out.folded")
		args := []string{"count", "-o", outs[i], "-p", strconv.Itoa(pid)}
		for _, flag := range test.flags {
			args = append(args, strings.ReplaceAll(flag, "EVENTS", events))
		}
		running[i] = command(t, args...)
		if err := running[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range running {
		awaitSampling(t, c)
	}
	after = ask("r")
	own := func(name string) int { return after[name] - before[name] }
	for _, c := range running { // together, since each takes a while to detach
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	for i, test := range tests {
		t.Run(strings.Join(test.flags[1:], " "), func(t *testing.T) {
			r := finish(t, running[i])
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			stacks := readFolded(t, outs[i])
			most := 1
			if test.want == "written" {
				most = own("written") / own("writes")
			}
			wants[i] = hits(own(test.want), most, r.stderr)
			if got := sum(stacks); !wants[i].Has(got) || got == 0 {
				t.Errorf("got %d, want %s (%s)\n%s", got, wants[i], test.want, r.stderr)
			}
			if count(stacks, test.frame) == 0 {
				t.Errorf("no stack has %s: %v", test.frame, stacks)
			}
			if strings.Contains(r.stderr, "above the limit") {
				t.Errorf("hits were lost: %s", r.stderr)
			}
		})
	}
	return after
}

// With --every 10, a counted hit counts for 10. It is one of them at random: the last bit of tick's
// argument alternates. With --max-rate, the summary reports the hits above the limit, for which those
// that count stand.
func TestCountPace(t *testing.T) {
	testenv.Root(t)
	events := compile(t, "events.c", "events")
	out := filepath.Join(t.TempDir(), "out.folded")
	r := fulgur(t, "count", "-o", out, "-e", "uprobe:"+events+":tick", "--every", "10", "--", events)
	// When the program leaves a CPU, up to 9 hits there remain uncounted, or count though they are missing.
	if got, want := sum(readFolded(t, out)), numbers(t, r.stdout)["ticks"]; r.code != 0 || max(got-want, want-got) > 9*runtime.NumCPU() || got%10 != 0 {
		t.Errorf("got %d of %d hits, code %d: %s", got, want, r.code, r.stderr)
	}
	if !strings.Contains(r.stderr, "one of 10 hits was counted") {
		t.Errorf("the summary does not say that hits were left out: %s", r.stderr)
	}
	r = fulgur(t, "count", "-o", out, "-e", "uprobe:"+events+":tick", "--every", "2", "--weight", "arg1", "--", events)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	stat.Binomial(numbers(t, r.stdout)["ticks"]/2, 0.5).Check(t, "chosen hits whose argument is 1", sum(readFolded(t, out))/2)
	r = fulgur(t, "count", "-o", out, "-e", "uprobe:"+events+":tick", "--every", "5", "--max-rate", "3", "--", events)
	limited := regexp.MustCompile(`(\d+) hits? above the limit`).FindStringSubmatch(r.stderr)
	if r.code != 0 || limited == nil {
		t.Fatalf("exit code %d, want 0 and hits above the limit: %s", r.code, r.stderr)
	}
	if got, want := sum(readFolded(t, out))+mustNumber(t, limited[1]), numbers(t, r.stdout)["ticks"]; max(got-want, want-got) > 4*runtime.NumCPU() {
		t.Errorf("got %d hits and those above the limit, want %d", got, want)
	}
	r = fulgur(t, "count", "-o", out, "-e", "uprobe:"+events+":tick", "--max-rate", "3", "--", events)
	limited = regexp.MustCompile(`(\d+) hits? above the limit`).FindStringSubmatch(r.stderr)
	if r.code != 0 || limited == nil {
		t.Fatalf("exit code %d, want 0 and hits above the limit: %s", r.code, r.stderr)
	}
	n, err := strconv.Atoi(limited[1])
	if got, want := sum(readFolded(t, out)), numbers(t, r.stdout)["ticks"]; err != nil || got+n != want || got == 0 {
		t.Errorf("got %d hits and %d above the limit, want %d in all", got, n, want)
	}
}

// Each event that a pattern matches has exactly its own hits, on top of the stacks and in the
// summary, also hits before the unwind tables are loaded.
func TestCountMatches(t *testing.T) {
	testenv.OneKernel(t)
	testenv.Root(t)
	needCookies(t)
	events := compile(t, "events.c", "events")
	const group = "tracepoint:syscalls:"
	for pattern, kinds := range map[string]map[string]string{ // events to the program's names of the counts
		"syscalls:*":                    {group + "sys_enter_write": "writes", group + "sys_exit_write": "writes", group + "sys_enter_prctl": "renames"},
		"syscalls:sys_e*_prctl":         {group + "sys_enter_prctl": "renames", group + "sys_exit_prctl": "renames"},
		"uretprobe:" + events + ":c*_*": {"uretprobe:" + events + ":caller_one": "ones", "uretprobe:" + events + ":caller_two": "twos"},
	} {
		t.Run(pattern, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.folded")
			r := fulgur(t, "count", "-o", out, "-e", pattern, "--", events)
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			stacks, own := readFolded(t, out), numbers(t, r.stdout)
			own["writes"]++ // of the numbers
			own["ones"], own["twos"] = own["ticks"], own["callers"]-own["ticks"]
			for event, name := range kinds {
				got, want := count(stacks, "["+event+"]"), hits(own[name], 1, r.stderr)
				row := regexp.MustCompile(fmt.Sprintf(`(?m)^ +%d +%s$`, got, regexp.QuoteMeta(event)))
				if !want.Has(got) || !row.MatchString(r.stderr) {
					t.Errorf("%s: got %d hits, want %s\n%s", event, got, want, r.stderr)
				}
			}
			if strings.Contains(r.stderr, "sample") {
				t.Errorf("hits are called samples: %s", r.stderr)
			}
		})
	}
}

// One of N hits of each event counts, however the events alternate: every fourth call here is of
// the other function. The name of a uprobe's function is in the stacks anyway.
func TestCountPaceOfMatches(t *testing.T) {
	testenv.Root(t)
	needCookies(t)
	events := compile(t, "events.c", "events")
	for kind, frame := range map[string]string{"uretprobe": "[uretprobe:" + events + ":%s]", "uprobe": ";%s"} {
		out := filepath.Join(t.TempDir(), "out.folded")
		r := fulgur(t, "count", "-o", out, "-e", kind+":"+events+":caller_*", "--every", "2", "--", events)
		if r.code != 0 {
			t.Fatalf("%s: exit code %d, want 0: %s", kind, r.code, r.stderr)
		}
		stacks, own := readFolded(t, out), numbers(t, r.stdout)
		for name, want := range map[string]int{"caller_one": own["ticks"], "caller_two": own["callers"] - own["ticks"]} {
			got := count(stacks, fmt.Sprintf(frame, name))
			if max(got-want, want-got) > runtime.NumCPU() { // each CPU can have a rest of 1
				t.Errorf("%s: %s: got %d hits, want %d", kind, name, got, want)
			}
		}
		if kind == "uprobe" && count(stacks, "[uprobe:") != 0 {
			t.Errorf("the event is in the stacks: %v", stacks)
		}
	}
}

// The places of a USDT probe are one event: one of N of its hits counts, even if each place has
// fewer than N, and nothing tells them apart.
func TestCountPaceOfPlaces(t *testing.T) {
	testenv.Root(t)
	events := compile(t, "events.c", "events")
	out := filepath.Join(t.TempDir(), "out.folded")
	const every = 100
	r := fulgur(t, "count", "-o", out, "-e", "usdt:"+events+":fulgur:step", "--every", strconv.Itoa(every), "--", events)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	stacks, want := readFolded(t, out), numbers(t, r.stdout)["steps"]
	if got := sum(stacks); max(got-want, want-got) >= every*runtime.NumCPU() { // each CPU can have a rest
		t.Errorf("got %d of %d hits: %s", got, want, r.stderr)
	}
	if count(stacks, "[usdt:") != 0 || strings.Contains(r.stderr, " event\n") {
		t.Errorf("the places are told apart: %v\n%s", stacks, r.stderr)
	}
}

// strace counts the same number of bytes.
func TestCountAgainstStrace(t *testing.T) {
	testenv.Root(t)
	strace := testenv.Tool(t, "strace")
	events := compile(t, "events.c", "events")
	trace := filepath.Join(t.TempDir(), "trace")
	if text, err := exec.Command(strace, "-o", trace, "-e", "trace=write", events).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, m := range regexp.MustCompile(`(?m)^write\(77,.* = (\d+)$`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		want += n
	}
	out := filepath.Join(t.TempDir(), "out.folded")
	r := fulgur(t, "count", "-o", out, "-e", "syscalls:sys_enter_*", "--weight", "count", "--filter", "fd == 77", "--", events)
	if got := sum(readFolded(t, out)); r.code != 0 || !hits(want, 4097, r.stderr).Has(got) || got == 0 {
		t.Errorf("got %d bytes, strace %d, code %d: %s", got, want, r.code, r.stderr)
	}
}

// With many tracepoints of system calls, only calls of the 64-bit interface count, as with a
// single tracepoint: call 64 is semget there, and getppid in the 32-bit interface.
func TestCountInterfaces(t *testing.T) {
	testenv.Root(t)
	if runtime.GOARCH != "amd64" {
		testenv.Unsupported(t, "a program of this architecture has one interface")
	}
	interfaces := compile(t, "interfaces.c", "interfaces")
	out := filepath.Join(t.TempDir(), "out.folded")
	for _, event := range []string{"syscalls:sys_*", "syscalls:sys_enter_semget"} {
		r := fulgur(t, "count", "-o", out, "-e", event, "--", interfaces)
		if r.code == 3 {
			testenv.Unsupported(t, "the kernel has no 32-bit interface")
		}
		stacks := readFolded(t, out)
		calls := sum(stacks)
		if event == "syscalls:sys_*" {
			if count(stacks, "[tracepoint:") == 0 {
				continue // before Linux 5.15, the matches of a pattern are not distinguished
			}
			calls = count(stacks, "[tracepoint:syscalls:sys_enter_semget]")
		}
		if r.code != 0 || calls != 10 {
			t.Errorf("%s: got %d calls, want 10; code %d: %s", event, calls, r.code, r.stderr)
		}
	}
}

// The strings of a record that have no fixed size can be compared.
func TestCountDynamicString(t *testing.T) {
	testenv.Root(t)
	runs := testenv.Tool(t, "true")
	out := filepath.Join(t.TempDir(), "out.folded")
	r := fulgur(t, "count", "-o", out, "-e", "sched:sched_process_exec", "--filter", `filename == "`+runs+`"`, "--",
		testenv.Tool(t, "sh"), "-c", runs+"; "+runs+"; "+testenv.Tool(t, "cat")+" /dev/null; "+runs+"; :")
	if got := sum(readFolded(t, out)); r.code != 0 || got != 3 {
		t.Errorf("got %d programs, want 3; code %d: %s", got, r.code, r.stderr)
	}
}

// awaitReading waits until a program reads its standard input.
func awaitReading(t *testing.T, pid int) {
	t.Helper()
	testenv.Await(t, func() bool {
		return waitsIn(pid, unix.SYS_READ, func(arguments []uint64) bool { return arguments[0] == 0 })
	}, func() string { return "the program does not read commands" })
}

// serve starts a program that takes commands on standard input, and answers with names and
// numbers. It waits until the program has loaded its libraries and reads commands, and returns its
// PID and a function that sends commands.
func serve(t *testing.T, program string) (pid int, ask func(commands string) map[string]int) {
	t.Helper()
	server := exec.Command(program, "serve")
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	startTarget(t, server)
	awaitReading(t, server.Process.Pid)
	lines := bufio.NewReader(answers)
	return server.Process.Pid, func(commands string) map[string]int {
		t.Helper()
		if _, err := io.WriteString(in, commands); err != nil {
			t.Fatal(err)
		}
		return answer(t, lines)
	}
}

// answer reads an answer of a program that [serve] started.
func answer(t *testing.T, lines *bufio.Reader) map[string]int {
	t.Helper()
	text := ""
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "end 0\n" {
			return numbers(t, text)
		}
		text += line
	}
}

// attacher returns the helper process of fulgur that attaches uprobes.
func attacher(t *testing.T, fulgur int) *os.Process {
	t.Helper()
	for _, pid := range children(t, fulgur) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // another child may have exited
		if strings.HasPrefix(string(line), "fulgur-uprobes\x00") {
			p, err := os.FindProcess(pid)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	t.Fatal("no process attaches uprobes")
	return nil
}

// A target's program is probed while it is measured, and its code is restored when fulgur
// ends, even if SIGKILL ends fulgur or the process that attaches uprobes. Without that process,
// the measurement goes on.
func TestCountRestoresCode(t *testing.T) {
	testenv.Root(t)
	events := compile(t, "events.c", "events")
	pid, ask := serve(t, events)
	clean := ask("b")
	restored := func(how string) {
		t.Helper()
		var got map[string]int
		testenv.Await(t, func() bool {
			got = ask("b")
			return maps.Equal(got, clean)
		}, func() string { return fmt.Sprintf("%s: the code is %v, want %v", how, got, clean) })
	}
	before := 0
	for _, how := range []string{"interrupt", "SIGKILL", "SIGKILL of both", "SIGKILL of the helper"} {
		out := filepath.Join(t.TempDir(), "out.folded")
		c := command(t, "count", "-o", out, "-p", strconv.Itoa(pid),
			"-e", "uprobe:"+events+":work", "-e", "usdt:"+events+":fulgur:tick")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, c)
		// The counting begins after that: wait until the probes are there.
		var got map[string]int
		testenv.Await(t, func() bool {
			got = ask("b")
			return got["text"] != clean["text"] && got["semaphore"] == clean["semaphore"]+1
		}, func() string { return fmt.Sprintf("the program is not probed: %v: %s", got, c.Stderr) })
		if strings.HasPrefix(how, "SIGKILL of") {
			// First: it must not die while it detaches because fulgur has ended.
			if err := attacher(t, c.Process.Pid).Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if how == "SIGKILL" || how == "SIGKILL of both" {
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
			restored(how)
			continue
		}
		after := ask("r")
		if r := interrupt(t, c); r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		restored(how)
		if got, want := count(readFolded(t, out), ":work]"), after["calls"]-before; got != want {
			t.Errorf("%s: got %d calls, want %d", how, got, want)
		}
		before = after["calls"]
	}
}

// Bad names are refused with a hint, before anything is attached.
func TestCountRefuses(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	events := compile(t, "events.c", "events")
	for _, test := range []struct {
		flags []string
		want  string
	}{
		{[]string{"-e", "syscalls:openat"}, "did you mean syscalls:sys_enter_openat"},
		{[]string{"-e", "openat"}, "did you mean syscalls:sys_enter_openat?"},
		{[]string{"-e", "sched_switch"}, "did you mean sched:sched_switch?"},
		{[]string{"-e", "sched_swich"}, "did you mean sched:sched_switch"},
		{[]string{"-e", "sched_process_*"}, "did you mean sched:sched_process_*?"},
		{[]string{"-e", "nosuchthing"}, "the system call NAME is syscalls:sys_enter_NAME"},
		{[]string{"-e", "sched:sched_swich"}, "did you mean sched:sched_switch"},
		{[]string{"-e", "kporbe:vfs_read"}, "did you mean kprobe:vfs_read"},
		{[]string{"-e", "uprobe:" + events + ":wor"}, "did you mean work"},
		{[]string{"-e", "usdt:" + events + ":fulgur:tock"}, "did you mean fulgur:tick"},
		{[]string{"-e", "uprobe:/nonexistent:work"}, "no such file"},
		{[]string{"-e", "uprobe:" + events + ":work+2"}, "no instruction begins there"},
		{[]string{"-e", "uprobe:" + events + ":work+0x10000"}, "the function has only"},
		{[]string{"-e", "uretprobe:" + program(t) + ":runtime.memmove"}, "the end of a function in assembly is unknown"},
		{[]string{"-e", "sched:sched_switch", "--weight", "prio"}, "the fields are prev_comm, prev_pid"},
		{[]string{"-e", "sched:sched_switch", "--weight", "prev_comm"}, "is not a number"},
		{[]string{"-e", "sched:sched_switch", "--filter", `prev_pid == "x"`}, "is not a string"},
		{[]string{"-e", "syscalls:sys_enter_write", "--filter", "count < 0 - 1"}, "filter"},
		{[]string{"-e", "syscalls:sys_enter_write", "--filter", "count == -1"}, "cannot be -1"},
		{[]string{"-e", "syscalls:*", "--max-probes", "5"}, "more than --max-probes allows (5)"},
		{[]string{"-e", "cycles"}, "the forms are"},
		{[]string{"-e", "sched:sched_switch", "-e", "tracepoint:sched:sched_switch"}, "given twice"},
	} {
		r := fulgur(t, append(append([]string{"count"}, test.flags...), "1")...)
		if r.code != 2 || !strings.Contains(r.stderr, test.want) {
			t.Errorf("%s: got code %d and %q, want 2 and %q", test.flags, r.code, r.stderr, test.want)
		}
	}
	r := fulgur(t, "count", "-e", "uprobe:"+events+":work", "-p", "99999999", "1")
	if want := "process 99999999: not found"; r.code != 1 || !strings.Contains(r.stderr, want) {
		t.Errorf("without the process: got code %d and %q, want 1 and %q", r.code, r.stderr, want)
	}
}
