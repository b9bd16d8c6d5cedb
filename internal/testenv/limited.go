package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// limitedVar names the test for which [Limited] started a process.
const limitedVar = "FULGUR_LIMITED_TEST"

// Limited runs f in a separate process. The test fails if f fails or needs more memory,
// in bytes, or CPU time. CPU time is used rather than elapsed time, so that a busy
// machine makes no difference. The test must reach this call the same way in that
// process. It is skipped with the race detector, which takes many times as much of both;
// make test runs the package without it, too.
func Limited(t *testing.T, memory uint64, cpu time.Duration, f func(t *testing.T)) {
	t.Helper()
	if raceEnabled {
		Unsupported(t, "runs without the race detector")
	}
	if os.Getenv(limitedVar) == t.Name() {
		limit(t, memory, cpu)
		f(t)
		return
	}
	if out, err := again(t, limitedVar).CombinedOutput(); err != nil {
		t.Errorf("with %d MiB and %v of CPU time: %v\n%s", memory>>20, cpu, err, out[:min(len(out), shownOutput)])
	}
}

// shownOutput is how much output of a test in another process is shown, in bytes.
const shownOutput = 3000

// again returns the command that runs the test in another process, with its name in a variable.
func again(t *testing.T, variable string) *exec.Cmd {
	t.Helper()
	var parts []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run="+strings.Join(parts, "/"), "-test.count=1")
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	return cmd
}

// limit bounds the resources of this process from now on.
func limit(t *testing.T, memory uint64, cpu time.Duration) {
	t.Helper()
	seconds := uint64(cpu / time.Second)
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: memory + reserved, Max: memory + reserved}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds + 1}); err != nil {
		t.Fatal(err)
	}
	go watch(memory)
}

// reserved is the address space that Go reserves without using it, plus some more, in
// bytes. The limit on address space is for allocations that are too large for watch to
// see in time.
const reserved = 2 << 30

// watch ends the process when it uses too much memory. An allocation beyond RLIMIT_AS
// ends it immediately, but not every system has that limit.
func watch(memory uint64) {
	used := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for {
		metrics.Read(used)
		if n := used[0].Value.Uint64() - used[1].Value.Uint64(); n > memory {
			fmt.Fprintf(os.Stderr, "uses %d MiB of memory\n", n>>20)
			os.Exit(3)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
