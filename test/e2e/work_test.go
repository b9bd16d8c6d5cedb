package e2e

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// The work that a program does in a second depends on the load of the machine. These
// tests therefore measure the CPU time of programs.

// cpuUsed returns the CPU time of all threads of a process.
func cpuUsed(t *testing.T, pid string) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	used, err := testenv.CPUTime(n)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// awaitWork waits until a process has used work more CPU time.
func awaitWork(t *testing.T, pid string, work time.Duration) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	testenv.AwaitCPUTime(t, n, work)
}

// sampleWork runs fulgur until each process has used the given CPU time while fulgur
// samples, and then interrupts fulgur.
func sampleWork(t *testing.T, work time.Duration, pids []string, args ...string) result {
	t.Helper()
	cmd := command(t, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, cmd)
	for _, pid := range pids {
		awaitWork(t, pid, work)
	}
	return interrupt(t, cmd)
}

var skippedSamples = regexp.MustCompile(`(\d+) samples? skipped`)

// skipped returns the number of samples of all programs that the kernel skipped,
// according to fulgur's summary.
func skipped(summary string) (n int) {
	if m := skippedSamples.FindStringSubmatch(summary); m != nil {
		n, _ = strconv.Atoi(m[1])
	}
	return n
}

// checkTicks checks that the number of samples equals the ticks of a clock with the given
// frequency in the CPU time that a program reports, in the given number of slices. The
// kernel may have skipped some of the samples.
func checkTicks(t *testing.T, what string, samples int, used time.Duration, frequency, slices int, summary string) {
	t.Helper()
	skipped := skipped(summary)
	r := ticks(used, frequency, slices, skipped)
	t.Logf("%s: %d samples and %d skipped, %v in %d slices are %s", what, samples, skipped, used, slices, r)
	r.Check(t, "samples of "+what, samples)
}

// ticks returns the bounds of checkTicks.
func ticks(used time.Duration, frequency, slices, skipped int) stat.Range {
	r := stat.Ticks(used, time.Second/time.Duration(frequency), slices)
	// Interrupts, and time taken by a hypervisor, count for the sampling clock,
	// but not, or not always, for the program's clock.
	r.High += r.High / 20
	r.Low -= r.Low/20 + skipped
	return r
}

// awaitSleep waits until a process sleeps.
func awaitSleep(t *testing.T, pid string) {
	t.Helper()
	awaitStat(t, pid, ") S ")
}

// awaitStat waits until /proc/PID/stat of a process contains text, such as ") R " for a
// running process.
func awaitStat(t *testing.T, pid, text string) {
	t.Helper()
	await(t, "/proc/"+pid+"/stat", text)
}

// awaitTraced waits until a process has a tracer and has used some CPU time since.
func awaitTraced(t *testing.T, pid string) {
	t.Helper()
	traced := regexp.MustCompile(`\nTracerPid:\t[1-9]`)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			t.Fatal(err)
		}
		if traced.Match(b) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("timeout: process %s is not traced", pid)
		}
	}
	awaitWork(t, pid, 50*time.Millisecond)
}
