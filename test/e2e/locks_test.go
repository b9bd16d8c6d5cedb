package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// The waits for a futex equal the program's own, and their time is within its
// own bounds. The lock has the name of its variable, or its address in memory if the program ended
// before fulgur saw it.
func TestLocksFutex(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	locks := compile(t, "locks.c", "locks")
	out := filepath.Join(t.TempDir(), "out.folded")
	r := fulgur(t, "locks", "--only", "user", "-o", out, "--", locks)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	own, time := numbers(t, r.stdout), 0
	lock := regexp.MustCompile(fmt.Sprintf(`;\[futex (locks\.c:word|%#x)\]$`, own["address"]))
	for stack, n := range readFolded(t, out) {
		// Not before the process is known, which the summary then says.
		known := !strings.Contains(r.stderr, "truncated") && !strings.Contains(r.stderr, "without unwind tables") && !strings.Contains(r.stderr, "exited early")
		if !lock.MatchString(stack) || known && !strings.Contains(stack, "contend") {
			t.Errorf("got %d µs in the stack %s, want one of contend and the lock %v: %s", n, stack, lock, r.stderr)
		}
		time += n * 1000
	}
	waits := 0
	if m := regexp.MustCompile(`(?m)^(\d+) waits, `).FindStringSubmatch(r.stderr); m != nil {
		waits, _ = strconv.Atoi(m[1])
	}
	if want := hits(own["waits"], 1, r.stderr); !want.Has(waits) {
		t.Errorf("got %d waits, want %s: %s", waits, want, r.stderr)
	}
	least := own["least"] - (own["waits"]-waits)*own["each"]
	rounding := own["waits"] * 1000 // each stack is rounded to microseconds
	if time < least-rounding || time > own["most"]+rounding {
		t.Errorf("got %d ns, want %d to %d", time, least, own["most"])
	}
}

// measureContention runs testdata/contend.c under fulgur locks or record with flags, and
// returns the program's own counts. The program runs before it is measured, so that its unwind
// tables are ready and all stacks are whole.
func measureContention(t *testing.T, args ...string) (own map[string]int, r result) {
	t.Helper()
	pid, ask := serve(t, compile(t, "contend.c", "contend", "-pthread"))
	ask("r")
	c := command(t, append(args, "-p", strconv.Itoa(pid))...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, c)
	own = ask("r")
	if r = interrupt(t, c); r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	return own, r
}

// The waker of a wait is the thread that releases the lock, and the owner of a lock of the kernel
// the thread that holds it.
func TestLocksWakers(t *testing.T) {
	testenv.OneKernel(t)
	testenv.Root(t)
	out := filepath.Join(t.TempDir(), "out.folded")
	own, r := measureContention(t, "locks", "--waker-stacks", "--owners", "-o", out)
	stacks := readFolded(t, out)
	slept, waited := 0, 0
	for stack := range stacks {
		wait, waker, _ := strings.Cut(stack, ";[woken by];")
		switch {
		case strings.Contains(wait, ";sleeps;") && strings.Contains(wait, ";[futex "): // not a lock of the kernel on the way
			slept++
			if !strings.Contains(waker, ";wakes;run;main;") || strings.Contains(wait, "[held by") {
				t.Errorf("got the stack %s, want wakes as the waker, and no owner", stack)
			}
		case strings.Contains(wait, ";waits;") && strings.Contains(wait, ";[held by holder]") && strings.Contains(waker, ";holds;holder;"):
			waited++
		}
	}
	if slept == 0 {
		t.Errorf("no stack of %d waits for the futex: %v\n%s", own["wakes"], stacks, r.stderr)
	}
	if waited == 0 && !strings.Contains(r.stderr, "of Linux 5.19") {
		t.Errorf("no stack of %d writes has its owner and its waker: %v\n%s", own["writes"], stacks, r.stderr)
	}
}

// A recording has each wait as a marker on the thread that waits.
func TestRecordLocks(t *testing.T) {
	testenv.Root(t)
	out := filepath.Join(t.TempDir(), "out.json.gz")
	own, r := measureContention(t, "record", "--locks", "--no-cpu", "--no-blockio", "--no-faults", "-o", out)
	p := readRecording(t, out)
	markers := hitsOf(t, p)
	woken, held := 0, 0
	for _, m := range markers["futex"] {
		if strings.HasPrefix(m.fields["woken by"], "contend ") && strings.HasPrefix(m.fields["lock"], "futex contend+0x") && m.stack {
			woken++
		}
	}
	if want := hits(own["wakes"], 1, r.stderr); woken == 0 || woken > want.High {
		t.Errorf("got %d waits for the futex, want %s: %v\n%s", woken, want, markers["futex"], r.stderr)
	}
	for _, m := range markers["lock"] {
		if strings.HasPrefix(m.fields["held by"], "holder ") && strings.HasPrefix(m.fields["woken by"], "holder ") {
			held++
		}
	}
	if held == 0 && !strings.Contains(r.stderr, "of Linux 5.19") {
		t.Errorf("no wait for a lock of the kernel has its owner and its waker: %v\n%s", markers["lock"], r.stderr)
	}
	if !strings.Contains(r.stderr, "waiting  futex\n") || !strings.Contains(r.stderr, "  futex contend+0x") {
		t.Errorf("the summary has no table of locks: %s", r.stderr)
	}
	tracks := 0
	for _, k := range p.Threads {
		if *k.Name == "locks" {
			tracks++
		}
	}
	if tracks != 1 {
		t.Errorf("got %d tracks of locks, want 1", tracks)
	}
}

// Kernels without the tracepoints of contention measure futexes, and say so.
func TestLocksKernel(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	const missing = "kernel locks need the tracepoint lock:contention_begin of Linux 5.19"
	types, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if err != nil {
		t.Fatal(err)
	}
	r := fulgur(t, "locks", "--only", "kernel", "0.1")
	if !strings.Contains(string(types), "\x00btf_trace_contention_begin\x00") {
		if r.code != 1 || !strings.Contains(r.stderr, missing) {
			t.Errorf("got code %d and %q, want 1 and %q", r.code, r.stderr, missing)
		}
		r = fulgur(t, "locks", "0.1")
		if r.code != 0 || !strings.Contains(r.stderr, missing+": only locks of programs") {
			t.Errorf("got code %d and %q, want 0 and a note", r.code, r.stderr)
		}
		return
	}
	if r.code != 0 || strings.Contains(r.stderr, missing) {
		t.Errorf("got code %d and %q, want 0", r.code, r.stderr)
	}
}
