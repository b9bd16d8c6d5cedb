package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// needBpftrace returns the path of bpftrace, and skips the test if there is none. The rig has
// it only with -tool bpftrace -package linux-libc-dev -memory 4096: it is large, and takes a
// minute to start in emulated VMs.
func needBpftrace(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("bpftrace"); err != nil && testenv.InVM() {
		testenv.Unsupported(t, "bpftrace is too large and slow for all runs in emulated VMs")
	}
	return testenv.Tool(t, "bpftrace")
}

// trace starts a program of bpftrace. It returns a function that ends the program and returns
// the values of its maps, by their names and keys, such as "waits[42]". The program runs in a
// mount namespace of its own, since bpftrace needs the tracing file system to be mounted.
func trace(t *testing.T, program string) (values func() map[string]int) {
	t.Helper()
	bpftrace, unshare := needBpftrace(t), testenv.Tool(t, "unshare")
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
		values, value := map[string]int{}, regexp.MustCompile(`^@(\w+(?:\[.*\])?): (\d+)$`)
		for lines.Scan() {
			if m := value.FindStringSubmatch(lines.Text()); m != nil {
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
		values := testenv.Receive(t, read, "bpftrace does not exit")
		if err := c.Wait(); err != nil || lines.Err() != nil {
			t.Fatalf("bpftrace: %v, %v: %s", err, lines.Err(), errors)
		}
		return values
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
// at the same tracepoints, and the same time but for what they take themselves. A mutex reports
// the beginning of a wait twice. fulgur is attached first, so that its walks of stacks are not in
// bpftrace's time, either.
func TestLocksAgainstBpftrace(t *testing.T) {
	testenv.Root(t)
	if types, err := os.ReadFile("/sys/kernel/btf/vmlinux"); err != nil || !strings.Contains(string(types), "\x00btf_trace_contention_begin\x00") {
		testenv.Unsupported(t, "the kernel does not report contention (Linux 5.19): %v", err)
	}
	contend := compile(t, "contend.c", "contend", "-pthread")
	pid, ask := serve(t, contend)
	c := command(t, "locks", "--only", "kernel", "-o", filepath.Join(t.TempDir(), "out.folded"), "-p", strconv.Itoa(pid))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, c)
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
	// At each write, both threads may wait for the lock.
	if got, _ := strconv.Atoi(row[1]); !want.Has(got) || got == 0 || got > 2*own["writes"] {
		t.Errorf("got %d waits, want %s, at most two for each of %d writes\n%s\n%v", got, want, own["writes"], r.stderr, theirs)
	}
	waited, err := time.ParseDuration(strings.ReplaceAll(row[2], " ", ""))
	theirTime := time.Duration(theirs["time["+row[3]+"]"])
	if err != nil || want.Low == want.High && (waited-theirTime).Abs() > theirTime/50 {
		t.Errorf("got %s (%v), want %s within 2%%", row[2], err, theirTime)
	}
	t.Logf("%s waits, %s; bpftrace has %d, %s", row[1], waited, peer, theirTime)
}
