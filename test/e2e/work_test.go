package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	return sampleWorkBy(t, command(t, args...), work, pids...)
}

// sampleWorkBy is like sampleWork, with a command that runs fulgur.
func sampleWorkBy(t *testing.T, cmd *exec.Cmd, work time.Duration, pids ...string) result {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, cmd)
	for _, pid := range pids {
		awaitWork(t, pid, work)
	}
	return interrupt(t, cmd)
}

// measureReady starts a program that prints "ready", and works until it exits once its standard
// input ends. It measures this work with fulgur, which must succeed, and also returns what the
// program printed then. fulgur knows the program before it works, however slow the machine is.
func measureReady(t *testing.T, cmd *exec.Cmd, args ...string) (r result, printed string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, buffered := start(t, cmd), bufio.NewReader(out)
	if line, err := buffered.ReadString('\n'); line != "ready\n" {
		t.Fatalf("%v printed %q, error %v", cmd, line, err)
	}
	profiler := command(t, append(args, "-p", strconv.Itoa(cmd.Process.Pid))...)
	if err := profiler.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, profiler)
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(buffered)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	if r = finish(t, profiler); r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	return r, string(rest)
}

var skippedSamples = regexp.MustCompile(`(?m)^ +(\d+) [\w -]+ skipped`)

// skipped returns the number of samples or hits of all programs that the kernel skipped,
// according to fulgur's summary.
func skipped(summary string) (sum int) {
	for _, m := range skippedSamples.FindAllStringSubmatch(summary, -1) {
		n, _ := strconv.Atoi(m[1])
		sum += n
	}
	return sum
}

// hits returns how many hits are due in a number of hits by the program's own account, or
// which sum if each counts for at most most. A preemptible kernel skips the hits of
// tracepoints and kprobes on a CPU where a change of a BPF map was preempted, and the summary
// reports them.
func hits(own, most int, summary string) stat.Range {
	return stat.Range{Low: own - most*skipped(summary), High: own}
}

// work is what a program that never waits reports of its work.
type work struct {
	cpu     time.Duration
	elapsed time.Duration
	slices  int // of CPU time
}

// parseWork reads what a program reports: the CPU time and the elapsed time in ns, and how
// often it left the CPU.
func parseWork(t *testing.T, report string) (w work) {
	t.Helper()
	if _, err := fmt.Sscan(report, &w.cpu, &w.elapsed, &w.slices); err != nil {
		t.Fatalf("%q: %v", report, err)
	}
	w.slices++
	return w
}

// add adds other work.
func (w *work) add(o work) {
	w.cpu += o.cpu
	w.elapsed += o.elapsed
	w.slices += o.slices
}

// ticks returns how many samples the work has if the kernel skipped the given number of
// samples of all programs.
func (w work) ticks(frequency, skipped int) stat.Range {
	period := time.Second / time.Duration(frequency)
	low := stat.Ticks(w.cpu, period, w.slices).Low
	// The sampling clock continues while a hypervisor runs something else, and in
	// interrupts. The program's clock may stand still then, for any share of the time. Only
	// the elapsed time includes both.
	high := stat.Ticks(max(w.cpu, w.elapsed), period, w.slices).High
	// Processes that follow each other overlap while one exits.
	return stat.Range{Low: max(1, low-low/20-skipped), High: high + high/20}
}

// checkTicks checks that a program has as many samples as its work has ticks of a clock
// with the given frequency.
func checkTicks(t *testing.T, what string, samples int, w work, frequency int, summary string) {
	t.Helper()
	skipped := skipped(summary)
	r := w.ticks(frequency, skipped)
	t.Logf("%s: %d samples and %d skipped, %+v is %s", what, samples, skipped, w, r)
	r.Check(t, "samples of "+what, samples)
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
	testenv.Await(t, func() bool {
		b, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			t.Fatal(err)
		}
		return traced.Match(b)
	}, func() string { return "process " + pid + " is not traced" })
	awaitWork(t, pid, 50*time.Millisecond)
}
