package stopping

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/tracing"
	"fulgur/internal/testenv"
)

// relay is the argument that makes the test binary sample the process in the next argument until it is killed, as fulgur
// would.
const relay = "sample-for-ever"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == relay {
		fmt.Fprintln(os.Stderr, sampleForEver(os.Args[2]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// sampleForEver samples a process as often as possible. It writes a byte to standard output after the first stop.
func sampleForEver(arg string) error {
	pid, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	s, err := eager(target.Target{Scope: target.Processes, PIDs: []int{pid}})
	if err != nil {
		return err
	}
	for told := false; ; time.Sleep(time.Millisecond) {
		if _, _, err := s.Take(); err != nil {
			return err
		}
		if !told && s.Stats().Stops > 0 {
			told = true
			fmt.Print("!")
		}
	}
}

// eager returns a sampler that stops threads as often as it can.
func eager(t target.Target) (*Sampler, error) {
	s, err := New(Options{Target: t, Period: 100 * time.Microsecond})
	if err != nil {
		return nil, err
	}
	s.pace.unlimited = true
	err = s.Enable()
	return s, err
}

// start starts a sampler that the end of the test closes.
func start(t *testing.T, of target.Target) *Sampler {
	t.Helper()
	mayTrace(t)
	s, err := eager(of)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// mayTrace skips the test unless it may trace processes that are not its children.
func mayTrace(t *testing.T) {
	t.Helper()
	if tracing.Scope() > 0 && os.Geteuid() != 0 {
		testenv.Skip(t, "needs root, or kernel.yama.ptrace_scope=0")
	}
}

// harm returns the test program.
func harm(t *testing.T) string {
	t.Helper()
	return testenv.Compile(t, "harm", "gcc", "-O1", "-pthread", "testdata/harm.c")
}

// launch starts a program to sample, and kills it when the test ends.
func launch(t *testing.T, args ...string) int {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// Whatever a program does, stops do not disturb it: it gets its signals, stays stopped and runs on as others tell it, its
// threads start, execute programs and end, its tracers trace.
func TestHarmless(t *testing.T) {
	testenv.Slow(t)
	mayTrace(t)
	times := func(n int) string {
		switch {
		case testenv.IsLong():
			n *= 20
		case testenv.BriefInVM():
			n = n/10 + 1
		}
		return strconv.Itoa(n)
	}
	program := harm(t)
	for _, args := range [][]string{
		{"signals", times(1)}, {"stopped", times(20)}, {"storm", times(100)}, {"traced", times(50)}, {"strays", times(200)},
	} {
		t.Run(args[0], func(t *testing.T) {
			dir := t.TempDir()
			out, err := os.Create(dir + "/out")
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			command, err := target.Start(append([]string{program}, args...), os.Stdin, out, out)
			if err != nil {
				t.Fatal(err)
			}
			defer command.Close()
			s := start(t, target.Target{Scope: target.Command, PIDs: []int{command.PID()}, Children: true})
			if err := command.Release(); err != nil {
				t.Fatal(err)
			}
			testenv.Receive(t, command.Done(), "the program does not end")
			code, err := command.Wait()
			text, _ := os.ReadFile(out.Name())
			if err != nil || code != 0 || !bytes.HasSuffix(text, []byte("ok\n")) {
				t.Errorf("got exit code %d, %v: %s", code, err, text)
			}
			if err := s.Disable(); err != nil {
				t.Error(err)
			}
			if stats := s.Stats(); stats.Stops < 5 {
				t.Errorf("got %+v, want some stops", stats)
			} else {
				t.Logf("%d stops, median %v, longest %v, %d late, %d began to wait, %d interrupted; %s", stats.Stops, stats.Median, stats.Longest, stats.Late, stats.Waiting, stats.Interrupted, text)
			}
		})
	}
}

// If the sampler is killed at any moment, all threads run on.
func TestKilled(t *testing.T) {
	testenv.Slow(t)
	mayTrace(t)
	pid := launch(t, harm(t), "busy", "3")
	n := 10
	if testenv.IsLong() {
		n = 200
	}
	for range n {
		cmd := exec.Command("/proc/self/exe", relay, strconv.Itoa(pid))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if n, err := out.Read(make([]byte, 1)); n != 1 {
			t.Fatal(err)
		}
		time.Sleep(rand.N(5 * time.Millisecond))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		tids, err := procfs.Threads(pid)
		if err != nil || len(tids) != 4 {
			t.Fatalf("got threads %v, %v", tids, err)
		}
		for _, tid := range tids {
			testenv.Await(t, func() bool {
				stat, err := procfs.Thread(pid, tid).Stat()
				status, serr := procfs.Thread(pid, tid).Status()
				return err == nil && serr == nil && stat.State == 'R' && status.TracerPID == 0
			}, func() string { return fmt.Sprintf("thread %d of %d does not run", tid, pid) })
		}
	}
}

// Threads that wait are never stopped, however long they are looked at.
func TestIdle(t *testing.T) {
	pid := launch(t, harm(t), "idle")
	testenv.Await(t, func() bool {
		stat, err := procfs.Process(pid).Stat()
		return err == nil && stat.State == 'S'
	}, func() string { return "the program does not wait" })
	s := start(t, target.Target{Scope: target.Processes, PIDs: []int{pid}})
	testenv.Await(t, func() bool { return s.Stats().Rounds > 100 }, func() string { return "no rounds" })
	if stats := s.Stats(); stats.Stops != 0 {
		t.Errorf("got %+v, want no stops", stats)
	}
}

// A process with a tracer is left to it, and one that another user may not trace is refused.
func TestRefused(t *testing.T) {
	mayTrace(t)
	program := harm(t)
	refusal := func(pid int) error {
		_, err := New(Options{Target: target.Target{Scope: target.Processes, PIDs: []int{pid}}, Period: time.Second})
		return err
	}
	command, err := target.Start([]string{program, "idle"}) // traced until its release
	if err != nil {
		t.Fatal(err)
	}
	if err := refusal(command.PID()); !errors.Is(err, tracing.ErrTraced) {
		t.Errorf("got %v for a process with a tracer, want %v", err, tracing.ErrTraced)
	}
	if err := command.Close(); err != nil {
		t.Error(err)
	}
	if err := refusal(os.Getpid()); err == nil || !strings.Contains(err.Error(), "fulgur itself") {
		t.Errorf("got %v for this process, want a refusal", err)
	}
	if err := refusal(1); err == nil {
		t.Error("got no error for the init process")
	}
	if err := refusal(1 << 30); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("got %v for no process, want %v", err, target.ErrNotFound)
	}
	if os.Geteuid() == 0 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		cmd.Args = []string{"sleep", "1000"}
		cmd.Path = testenv.Tool(t, "sleep")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
		if err := refusal(cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), "another user") {
			t.Errorf("got %v for another user's process, want a refusal", err)
		}
	}
}

// The sampler leaves the exit status of fulgur's own command to whoever waits for it, at whatever moment it ends.
func TestStatus(t *testing.T) {
	testenv.Slow(t)
	shell := testenv.Tool(t, "sh")
	for i := range 30 {
		command, err := target.Start([]string{shell, "-c", "i=0; while [ $i -lt " + strconv.Itoa(100*i) + " ]; do i=$((i+1)); done; exit 7"})
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, target.Target{Scope: target.Command, PIDs: []int{command.PID()}, Children: true})
		if err := command.Release(); err != nil {
			t.Fatal(err)
		}
		testenv.Receive(t, command.Done(), "the command does not end")
		if code, err := command.Wait(); code != 7 || err != nil {
			t.Errorf("got exit code %d, %v, want 7", code, err)
		}
		if err := s.Disable(); err != nil {
			t.Error(err)
		}
	}
}

// A thread keeps running after the end of sampling: none is attached.
func TestDetached(t *testing.T) {
	pid := launch(t, harm(t), "busy", "5")
	s := start(t, target.Target{Scope: target.Processes, PIDs: []int{pid}})
	testenv.Await(t, func() bool { return s.Stats().Stops > 20 }, func() string { return "no stops" })
	if err := s.Disable(); err != nil {
		t.Fatal(err)
	}
	tids, err := procfs.Threads(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, tid := range tids {
		testenv.Await(t, func() bool {
			status, err := procfs.Thread(pid, tid).Status()
			return err == nil && status.TracerPID == 0
		}, func() string { return "a thread is still attached" })
	}
	if slices.Contains(tids, unix.Gettid()) {
		t.Error("got threads of this process")
	}
}
