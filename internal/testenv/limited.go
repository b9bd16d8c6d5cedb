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

// limitedVar names the test that a process is started for by [Limited].
const limitedVar = "FULGUR_LIMITED_TEST"

// Limited runs f in a process of its own, and fails the test if f fails, or needs
// more memory, in bytes, or CPU time: a count of what was used, not of what passed
// meanwhile, so that a busy machine makes no difference. The test must come to this
// call by the same way there. It is skipped under the race detector, which takes many
// times as much of both; make test runs the package without it, too.
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
	var parts []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+strings.Join(parts, "/"), "-test.count=1")
	cmd.Env = append(os.Environ(), limitedVar+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil {
		const most = 3000
		t.Errorf("with %d MiB and %v of CPU time: %v\n%s", memory>>20, cpu, err, out[:min(len(out), most)])
	}
}

// limit bounds what this process may use from now on.
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

// reserved is the address space, in bytes, that Go reserves without using it, and
// some more: the limit on it is there for allocations that are larger than what
// watch could see in time.
const reserved = 2 << 30

// watch ends the process when it uses more memory: an allocation beyond
// RLIMIT_AS ends it by itself, but not everywhere is there one.
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
