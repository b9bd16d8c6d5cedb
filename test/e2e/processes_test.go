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

	"fulgur/internal/testenv"
)

// start starts a program that waits for its standard input to end, and returns
// that input. The program ends with the test.
func start(t *testing.T, cmd *exec.Cmd) io.Closer {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return in
}

// checkStorm wants the samples of a storm to stand for the CPU time that it
// printed, and to have names.
func checkStorm(t *testing.T, stacks map[string]int, printed string, frequency int) {
	t.Helper()
	ns, err := strconv.ParseInt(strings.TrimSpace(printed), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	used := time.Duration(ns)
	var samples, unnamed, burning int
	for stack, n := range stacks {
		frames := strings.Split(stack, ";")
		if frames[0] != "storm" {
			continue
		}
		samples += n
		if strings.HasPrefix(frames[len(frames)-1], "[") {
			unnamed += n
			t.Logf("%d in %s", n, stack)
		}
		if strings.Contains(stack, ";burn") {
			burning += n
		}
	}
	sampled := time.Duration(samples) * time.Second / time.Duration(frequency)
	t.Logf("%d samples, %d in burn, stand for %v of %v", samples, burning, sampled, used)
	// On a busy machine the kernel skips samples that it is late for.
	if sampled < used*4/5 || sampled > used+used/20 {
		t.Errorf("the samples stand for %v, the processes used %v", sampled, used)
	}
	// BPF programs of others may be gone when they are to be named.
	if unnamed > samples/100 {
		t.Errorf("%d of %d samples are in code without a name", unnamed, samples)
	}
	if burning < samples/4 {
		t.Errorf("%d of %d samples are in the function where the children work", burning, samples)
	}
}

// A thousand children a second, each shorter than a few sampling periods, are
// all accounted for and have names.
func TestForkStorm(t *testing.T) {
	testenv.Root(t)
	storm := compile(t, "storm.c", "storm", "-static")
	const children, frequency = "1500", 4999
	flags := []string{"profile", "-e", "cpu-clock", "-F", strconv.Itoa(frequency), "-f", "-o"}

	t.Run("command", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "out.folded")
		r := fulgur(t, append(flags, out, "--", storm, children)...)
		if r.code != 0 {
			t.Fatalf("exit code %d: %s", r.code, r.stderr)
		}
		checkStorm(t, readFolded(t, out), r.stdout, frequency)
	})
	t.Run("children", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "out.folded")
		cmd := exec.Command(storm, children)
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
		if r := finish(t, profiler); r.code != 0 {
			t.Fatalf("exit code %d: %s", r.code, r.stderr)
		}
		checkStorm(t, readFolded(t, out), printed.String(), frequency)
	})
}

// Five thousand processes that exist when the profile begins cost neither
// names nor much memory.
func TestManyProcesses(t *testing.T) {
	testenv.Root(t)
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
	profiler := command(t, "profile", "-F", "997", "-f", "1")
	r := finish(t, profiler)
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	burning := 0
	for stack, n := range folded(t, r.stdout) {
		if strings.HasPrefix(stack, "crowd;") && strings.Contains(stack, ";burn") {
			burning += n
		}
	}
	if burning == 0 {
		t.Errorf("the busy process is not in its function:\n%s", r.stdout)
	}
	// Its own peak, or ours when we forked it if that was higher: no less.
	var ours syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ours); err != nil {
		t.Fatal(err)
	}
	peak := profiler.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	t.Logf("%d samples in burn, %d KiB resident at most", burning, peak)
	if peak > max(150<<10, ours.Maxrss) {
		t.Errorf("%d KiB resident", peak)
	}
}

// A process that works for 20 ms is named in a profile of the whole system,
// though nothing knew its program before.
func TestBriefProcess(t *testing.T) {
	testenv.Root(t)
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	profiler := command(t, "profile", "-F", "4999", "-f")
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
		// Under the race detector it would sleep a second before it exits.
		cmd.Env = append(os.Environ(), "E2E_WORKLOAD="+testenv.Patience(20*time.Millisecond).String(), "GORACE=atexit_sleep_ms=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	r := interrupt(t, profiler)
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	named := map[string]int{}
	for stack, n := range folded(t, r.stdout) {
		if comm, frames, _ := strings.Cut(stack, ";"); strings.Contains(frames, "fulgur/test/e2e.long") {
			named[comm] += n
		}
	}
	t.Log(named)
	for i := range programs {
		if named[name(i)] == 0 {
			t.Errorf("%s was never seen in its function", name(i))
		}
	}
}
