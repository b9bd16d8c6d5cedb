package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// start starts a program that waits for its standard input to end, and returns that
// input. The program is killed when the test ends.
func start(t *testing.T, cmd *exec.Cmd) io.Closer {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	startTarget(t, cmd)
	return in
}

// startTarget starts a program that is killed when the test ends or the time limit is over.
func startTarget(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(testenv.TimeLimit(), func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		limit.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// stormWork is the CPU time that each child of a storm works, in its own function.
const stormWork = 500 * time.Microsecond

// checkStorm checks that the samples of a storm with so many children account for the CPU
// time that it printed, and have names.
func checkStorm(t *testing.T, stacks map[string]int, printed, summary string, children, frequency int) {
	t.Helper()
	w := parseWork(t, printed)
	var samples, unnamed, burning int
	for stack, n := range stacks {
		frames := strings.Split(stack, ";")
		if frames[0] != "storm" {
			continue
		}
		samples += n
		// Other tools' BPF programs may be unloaded before fulgur names them.
		if leaf := frames[len(frames)-1]; strings.HasPrefix(leaf, "[unknown") || strings.HasPrefix(leaf, "[no name") {
			unnamed += n
			t.Logf("%d in %s", n, stack)
		}
		if strings.Contains(stack, ";burn") {
			burning += n
		}
	}
	checkTicks(t, "the storm", samples, w, frequency, summary)
	// Half of it, because the children also read the clock.
	if due := stat.Ticks(time.Duration(children)*stormWork/2, time.Second/time.Duration(frequency), w.slices); burning+skipped(summary) < due.Low {
		t.Errorf("%d samples are in the function where the children work, and %d were skipped, want %d", burning, skipped(summary), due.Low)
	}
	if unnamed > 0 {
		t.Errorf("%d of %d samples are in code without a name, want 0", unnamed, samples)
	}
}

// A thousand children per second, each shorter than a few sampling periods, are all
// counted and have names.
func TestForkStorm(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	storm := compile(t, "storm.c", "storm", "-static")
	const children, frequency = 1500, 4999
	flags := []string{"profile", "-e", "cpu-clock", "-F", strconv.Itoa(frequency), "-f", "-o"}

	t.Run("command", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "out.folded")
		r := fulgur(t, append(flags, out, "--", storm, strconv.Itoa(children))...)
		if r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		checkStorm(t, readFolded(t, out), r.stdout, r.stderr, children, frequency)
	})
	t.Run("children", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "out.folded")
		cmd := exec.Command(storm, strconv.Itoa(children))
		printed := new(bytes.Buffer)
		cmd.Stdout = printed
		in := start(t, cmd)
		profiler := command(t, append(flags, out, "--children", "-p", strconv.Itoa(cmd.Process.Pid))...)
		if err := profiler.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, profiler)
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		r := finish(t, profiler)
		if r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		checkStorm(t, readFolded(t, out), printed.String(), r.stderr, children, frequency)
	})
}

// busiest returns the working child of many: the last one.
func busiest(t *testing.T, crowd int) (pid string) {
	t.Helper()
	pids, err := target.Descendants([]int{crowd})
	if err != nil || len(pids) == 0 {
		t.Fatalf("children = %v, %v, want some", pids, err)
	}
	for used := time.Duration(-1); len(pids) > 0; pids = pids[1:] {
		if p := strconv.Itoa(pids[0]); cpuUsed(t, p) > used {
			pid, used = p, cpuUsed(t, p)
		}
	}
	return pid
}

// With five thousand processes at the beginning of the profile, fulgur loses no names and
// needs little memory.
func TestManyProcesses(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	cmd := exec.Command(compile(t, "crowd.c", "crowd", "-static"), "5000")
	cmd.Stderr = os.Stderr
	ready, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, cmd)
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	busy := busiest(t, cmd.Process.Pid)
	profiler := command(t, "profile", "-F", "997", "-f")
	if err := profiler.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, profiler)
	awaitWork(t, busy, 500*time.Millisecond)
	r := interrupt(t, profiler)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	burning := 0
	for stack, n := range folded(t, r.stdout) {
		if strings.HasPrefix(stack, "crowd;") && strings.Contains(stack, ";burn") {
			burning += n
		}
	}
	if burning == 0 {
		t.Errorf("got no sample of the busy process in its function:\n%s", r.stdout)
	}
	t.Logf("%d samples in burn", burning)
	checkResident(t, profiler.ProcessState, 256<<10)
}

// checkResident checks that a program that this test started never had more than most KiB
// resident. The kernel includes this process's memory, which the program shared until its
// exec.
func checkResident(t *testing.T, ended *os.ProcessState, most int64) {
	t.Helper()
	var ours syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ours); err != nil {
		t.Fatal(err)
	}
	if peak := ended.SysUsage().(*syscall.Rusage).Maxrss; peak > max(most, ours.Maxrss) {
		t.Errorf("%d KiB resident, want at most %d", peak, most)
	}
}

// In a profile of the whole system, a process that works for 20 ms has names, although
// its program is new.
func TestBriefProcess(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	// At a rate and with a ring for which a busy machine leaves fulgur enough time.
	profiler := command(t, "profile", "-F", "999", "--ring-size", "64M", "-f")
	if err := profiler.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, profiler)
	const programs = 5
	name := func(i int) string { return fmt.Sprintf("brief%d", i) }
	for i := range programs {
		path := filepath.Join(t.TempDir(), name(i))
		if err := os.WriteFile(path, self, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path)
		// The race detector would sleep for a second before exit.
		cmd.Env = append(os.Environ(), "E2E_WORKLOAD="+testenv.Patience(20*time.Millisecond).String(), "GORACE=atexit_sleep_ms=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	r := interrupt(t, profiler)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	named, others := map[string]int{}, map[string][]string{}
	for stack, n := range folded(t, r.stdout) {
		if comm, frames, _ := strings.Cut(stack, ";"); strings.Contains(frames, "fulgur/test/e2e.long") {
			named[comm] += n
		} else {
			others[comm] = append(others[comm], fmt.Sprintln(n, frames))
		}
	}
	t.Log(named)
	for i := range programs {
		if named[name(i)] == 0 {
			t.Errorf("got no sample of %s in its function, but:\n%s", name(i), others[name(i)])
		}
	}
	if t.Failed() {
		t.Log(r.stderr)
	}
}
