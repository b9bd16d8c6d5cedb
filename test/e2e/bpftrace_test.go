package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// trace starts a program of bpftrace. It returns a function that ends the program and returns
// the values of its maps, by their names and keys, such as "waits[42]". The program runs in a
// mount namespace of its own, since bpftrace needs the tracing file system to be mounted.
func trace(t *testing.T, program string) (values func() map[string]int) {
	t.Helper()
	if testenv.InVM() {
		testenv.Unsupported(t, "compiling a program of bpftrace takes too long in emulated VMs")
	}
	bpftrace, unshare := testenv.Tool(t, "bpftrace"), testenv.Tool(t, "unshare")
	const mounted = "mount -t debugfs debugfs /sys/kernel/debug; mount -t tracefs tracefs /sys/kernel/tracing; exec \"$@\""
	// It prints the first line when all probes are attached.
	program += "interval:ms:10 { printf(\"attached\\n\"); }"
	c := exec.Command(unshare, "-m", "sh", "-c", mounted, "sh", bpftrace, "-e", program)
	c.Env = append(os.Environ(), "BPFTRACE_MAP_KEYS_MAX=65536")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errors := new(strings.Builder)
	c.Stderr = errors
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil { // the test gave up
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "attached" {
	}
	if err := lines.Err(); err != nil || lines.Text() != "attached" {
		t.Fatalf("bpftrace does not trace: %v: %s", err, errors)
	}
	read := make(chan map[string]int)
	go func() {
		values := map[string]int{}
		for lines.Scan() {
			if m := regexp.MustCompile(`^@(\w+(?:\[.*\])?): (\d+)$`).FindStringSubmatch(lines.Text()); m != nil {
				n, _ := strconv.Atoi(m[2])
				values[m[1]] = n
			}
		}
		read <- values
	}()
	return func() map[string]int {
		t.Helper()
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		values := <-read
		if err := c.Wait(); err != nil || lines.Err() != nil {
			t.Fatalf("bpftrace: %v, %v: %s", err, lines.Err(), errors)
		}
		return values
	}
}

// For each kind of event, fulgur and bpftrace count the same hits and sums in the same run of a
// program, which are the program's own.
func TestCountAgainstBpftrace(t *testing.T) {
	testenv.Root(t)
	events := compile(t, "events.c", "events")
	pid, ask := serve(t, events)
	tests := []struct {
		flags  []string
		probe  string // of bpftrace
		action string
		want   string // the program's name of the number
	}{
		{[]string{"-e", "uprobe:EVENTS:work"}, "uprobe:EVENTS:work", "count()", "calls"},
		{[]string{"-e", "uprobe:EVENTS:work", "--weight", "arg0"}, "uprobe:EVENTS:work", "sum(arg0)", "sum"},
		{[]string{"-e", "uprobe:EVENTS:work", "--filter", `arg1 == "beta"`}, `uprobe:EVENTS:work /str(arg1) == "beta"/`, "count()", "betas"},
		{[]string{"-e", "uprobe:EVENTS:caller_*"}, "uprobe:EVENTS:caller_*", "count()", "callers"},
		{[]string{"-e", "uretprobe:EVENTS:work"}, "uretprobe:EVENTS:work", "count()", "calls"},
		{[]string{"-e", "uretprobe:EVENTS:work", "--weight", "retval"}, "uretprobe:EVENTS:work", "sum(retval)", "returns"},
		{[]string{"-e", "usdt:EVENTS:fulgur:tick"}, "usdt:EVENTS:fulgur:tick", "count()", "ticks"},
		{[]string{"-e", "usdt:EVENTS:fulgur:tick", "--weight", "arg0"}, "usdt:EVENTS:fulgur:tick", "sum(arg0)", "tick_sum"},
		{[]string{"-e", "usdt:EVENTS:fulgur:tick", "--filter", "arg1 == 1"}, "usdt:EVENTS:fulgur:tick /arg1 == 1/", "count()", "odd"},
		{[]string{"-e", "syscalls:sys_enter_write", "--filter", "fd == 77"}, "tracepoint:syscalls:sys_enter_write /args->fd == 77/", "count()", "writes"},
		{[]string{"-e", "syscalls:sys_enter_write", "--weight", "count", "--filter", "fd == 77"}, "tracepoint:syscalls:sys_enter_write /args->fd == 77/", "sum(args->count)", "written"},
		{[]string{"-e", "syscalls:sys_exit_write", "--weight", "ret", "--filter", "ret == 4097"}, "tracepoint:syscalls:sys_exit_write /args->ret == 4097/", "sum(args->ret)", "written"},
		{[]string{"-e", "task:task_rename", "--filter", `newcomm == "renamed"`}, `tracepoint:task:task_rename /args->newcomm == "renamed"/`, "count()", "renames"},
		{[]string{"-e", "kprobe:vfs_write", "--filter", "count == 4097"}, "kprobe:vfs_write /arg2 == 4097/", "count()", "writes"},
		{[]string{"-e", "kretprobe:vfs_write", "--weight", "retval", "--filter", "retval == 4097"}, "kretprobe:vfs_write /retval == 4097/", "sum(retval)", "written"},
	}
	var program strings.Builder
	for i, test := range tests {
		if strings.HasPrefix(test.probe, "k") && !hasKprobes() {
			continue
		}
		probe, condition, _ := strings.Cut(strings.ReplaceAll(test.probe, "EVENTS", events), " /")
		if condition = strings.TrimSuffix(condition, "/"); condition != "" {
			condition = " && " + condition
		}
		fmt.Fprintf(&program, "%s /pid == %d%s/ { @m%d = %s; }\n", probe, pid, condition, i, test.action)
	}
	values := trace(t, program.String())
	var running []*exec.Cmd
	for i, test := range tests {
		args := []string{"count", "-o", filepath.Join(t.TempDir(), "out.folded"), "-p", strconv.Itoa(pid)}
		for _, flag := range test.flags {
			args = append(args, strings.ReplaceAll(flag, "EVENTS", events))
		}
		c := command(t, args...)
		running = append(running, c)
		if strings.HasPrefix(test.probe, "k") && !hasKprobes() {
			continue
		}
		if err := c.Start(); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	for _, c := range running {
		if c.Process != nil {
			awaitSampling(t, c)
		}
	}
	own := ask("r")
	theirs := values()
	for _, c := range running { // together, since each takes a while to detach
		if c.Process != nil {
			_ = c.Process.Signal(os.Interrupt)
		}
	}
	for i, c := range running {
		name := strings.Join(tests[i].flags[1:], " ")
		if c.Process == nil {
			t.Logf("%s: the kernel has no kprobes", name)
			continue
		}
		r := finish(t, c)
		if r.code != 0 {
			t.Fatalf("%s: exit code %d, want 0: %s", name, r.code, r.stderr)
		}
		most := 1
		if tests[i].want == "written" {
			most = own["written"] / own["writes"]
		}
		want := hits(own[tests[i].want], most, r.stderr)
		got, peer := sum(readFolded(t, c.Args[3])), theirs[fmt.Sprintf("m%d", i)]
		if !want.Has(got) || !want.Has(peer) || got == 0 {
			t.Errorf("%s: got %d, bpftrace %d, want %s\n%s", name, got, peer, want, r.stderr)
		}
		t.Logf("%s: fulgur %d, bpftrace %d, program %d", name, got, peer, own[tests[i].want])
	}
}

// fulgur and bpftrace count the same calls and intervals in the same run of a program, which are
// the program's own.
func TestLatencyAgainstBpftrace(t *testing.T) {
	testenv.Root(t)
	latency := compile(t, "latency.c", "latency", "-pthread")
	tests := []struct {
		begin, end string // of bpftrace
		flags      []string
		interval
	}{
		{
			"uprobe:LATENCY:nap", "uretprobe:LATENCY:nap", []string{"-e", "uprobe:LATENCY:nap"},
			interval{"uprobe:LATENCY:nap", "naps", "", "nap_least", "nap_most", "nap"},
		},
		{
			"usdt:LATENCY:fulgur:request__start", "usdt:LATENCY:fulgur:request__done",
			[]string{"-e", "usdt:LATENCY:fulgur:request__start", "--key", "arg0"},
			interval{"usdt:LATENCY:fulgur:request__start to usdt:LATENCY:fulgur:request__done", "requests", "unanswered", "request_least", "request_most", "request_start"},
		},
		{
			"tracepoint:syscalls:sys_enter_clock_nanosleep", "tracepoint:syscalls:sys_exit_clock_nanosleep",
			[]string{"-e", "syscalls:sys_enter_clock_nanosleep"},
			interval{"tracepoint:syscalls:sys_enter_clock_nanosleep to tracepoint:syscalls:sys_exit_clock_nanosleep", "sleeps", "", "nap_least", "", "sleep_ns"},
		},
	}
	for _, test := range tests {
		t.Run(test.begin, func(t *testing.T) {
			key := "tid"
			if strings.HasPrefix(test.begin, "usdt") {
				key = "arg0"
			}
			program := `BEGINS /comm == "latency"/ { @since[KEY] = nsecs; }
ENDS /comm == "latency" && @since[KEY]/ { @intervals = count(); @time = sum(nsecs - @since[KEY]); delete(@since[KEY]); }
END { clear(@since); }
`
			program = strings.NewReplacer("BEGINS", test.begin, "ENDS", test.end, "KEY", key).Replace(program)
			values := trace(t, strings.ReplaceAll(program, "LATENCY", latency))
			out := filepath.Join(t.TempDir(), "out.folded")
			args := []string{"latency", "-o", out}
			for _, flag := range test.flags {
				args = append(args, strings.ReplaceAll(flag, "LATENCY", latency))
			}
			r := fulgur(t, append(args, "--", latency)...)
			theirs := values()
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			own := numbers(t, r.stdout)
			test.name = strings.ReplaceAll(test.name, "LATENCY", latency)
			test.check(t, r.stderr, readFolded(t, out), own)
			if want := hits(own[test.count], 1, r.stderr); !want.Has(theirs["intervals"]) {
				t.Errorf("bpftrace has %d intervals, want %s", theirs["intervals"], want)
			}
			if theirs["time"] < own[test.least] || test.most != "" && theirs["time"] > own[test.most] {
				t.Errorf("bpftrace has %d ns, want %d to %d", theirs["time"], own[test.least], own[test.most])
			}
			t.Logf("program %d, bpftrace %d in %d ns: %s", own[test.count], theirs["intervals"], theirs["time"], r.stderr)
		})
	}
}

// fulgur and bpftrace see the same waits for a lock of the kernel in the same run of a program,
// at the same tracepoints. A mutex reports the beginning of a wait twice.
func TestLocksAgainstBpftrace(t *testing.T) {
	testenv.Root(t)
	if types, err := os.ReadFile("/sys/kernel/btf/vmlinux"); err != nil || !strings.Contains(string(types), "\x00btf_trace_contention_begin\x00") {
		testenv.Unsupported(t, "the kernel does not report contention (Linux 5.19): %v", err)
	}
	contend := compile(t, "contend.c", "contend", "-pthread")
	values := trace(t, `tracepoint:lock:contention_begin /comm == "contend" || comm == "holder"/ {
	if (!@since[tid, args->lock_addr]) { @since[tid, args->lock_addr] = nsecs; }
}
tracepoint:lock:contention_end /@since[tid, args->lock_addr]/ {
	@waits[args->lock_addr] = count();
	@time[args->lock_addr] = sum(nsecs - @since[tid, args->lock_addr]);
	delete(@since[tid, args->lock_addr]);
}
END { clear(@since); }
`)
	pid, ask := serve(t, contend)
	c := command(t, "locks", "--only", "kernel", "-o", filepath.Join(t.TempDir(), "out.folded"), "-p", strconv.Itoa(pid))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, c)
	own := ask("r")
	r := interrupt(t, c)
	theirs := values()
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	// The first is the lock of the program's file.
	row := regexp.MustCompile(`(?m)^ +(\d+) +(\S+ \S+)  lock (0x[0-9a-f]+)$`).FindStringSubmatch(r.stderr)
	if row == nil {
		t.Fatalf("no lock in the summary: %s", r.stderr)
	}
	peer := theirs["waits["+row[3]+"]"]
	want := hits(peer, 1, r.stderr)
	if got, _ := strconv.Atoi(row[1]); !want.Has(got) || got == 0 || got > 2*own["writes"] {
		t.Errorf("got %d waits, want %s, about %d writes\n%s\n%v", got, want, own["writes"], r.stderr, theirs)
	}
	t.Logf("%s waits, %s; bpftrace has %d, %d ns", row[1], row[2], peer, theirs["time["+row[3]+"]"])
}
