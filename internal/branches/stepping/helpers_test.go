package stepping

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/testenv"
)

// relay is the argument that makes the test binary step the process in the next argument
// until it is killed, as fulgur would.
const relay = "step-for-ever"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case Subcommand:
			exitWith(Run(os.Stdin, os.Stdout))
		case relay:
			exitWith(stepForEver(os.Args[2]))
		}
	}
	// The race detector sleeps for a second at the end of each process.
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	os.Exit(m.Run())
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// stepForEver steps the process as much as possible. It writes a byte to standard output
// after the first step.
func stepForEver(arg string) error {
	pid, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	s, err := Start(context.Background(), []int{pid}, Options{MaxOverhead: 1000})
	if err != nil {
		return err
	}
	fmt.Print("!")
	for range s.Samples() {
	}
	return s.Close()
}

// compile builds a program of testdata and returns its path.
func compile(t testing.TB, name string, flags ...string) string {
	t.Helper()
	return testenv.Compile(t, name, "gcc", append([]string{"-O1", "-pthread", "testdata/" + name + ".c"}, flags...)...)
}

// mayTrace skips the test unless it may trace processes that are not its children.
func mayTrace(t testing.TB) {
	t.Helper()
	scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err == nil && string(scope) != "0\n" && os.Geteuid() != 0 {
		testenv.Skip(t, "needs root, or kernel.yama.ptrace_scope=0")
	}
}

// launch starts a program to trace, and kills it when the test ends.
func launch(t testing.TB, bin string, args ...string) *exec.Cmd {
	t.Helper()
	mayTrace(t)
	cmd := exec.Command(bin, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// start steps processes until the test ends.
func start(t testing.TB, opts Options, pids ...int) *Stepper {
	t.Helper()
	mayTrace(t)
	s, err := Start(t.Context(), pids, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// collect returns the first n samples.
func collect(t testing.TB, s *Stepper, n int) []bolt.Sample {
	t.Helper()
	var samples []bolt.Sample
	timeout := time.After(testenv.TimeLimit())
	for len(samples) < n {
		select {
		case sample, ok := <-s.Samples():
			if !ok {
				t.Fatalf("got only %d samples: %v", len(samples), s.Close())
			}
			samples = append(samples, sample)
		case <-timeout:
			stats, refused := s.Stats()
			t.Fatalf("got only %d samples; %+v %v", len(samples), stats, refused)
		}
	}
	return samples
}
