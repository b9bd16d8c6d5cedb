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
// own bounds. The lock has its address in the program, or in memory if the program ended
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
	lock := regexp.MustCompile(fmt.Sprintf(`;\[futex (locks\+%#x|%#x)\]$`, own["relative"], own["address"]))
	for stack, n := range readFolded(t, out) {
		// Not before the process is known, which the summary then says.
		known := !strings.Contains(r.stderr, "truncated") && !strings.Contains(r.stderr, "exited early")
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
