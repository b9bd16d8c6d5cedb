package stepping

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// symbols returns the addresses of a program's symbols, according to nm.
func symbols(t *testing.T, bin string) map[string]uint64 {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "nm"), bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]uint64{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 {
			all[f[2]], _ = strconv.ParseUint(f[0], 16, 64)
		}
	}
	return all
}

// TestCycle steps a program that repeats a known cycle of branches.
func TestCycle(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		testenv.Unsupported(t, "the program is in x86 assembly")
	}
	bin := compile(t, "cycle", "-static", "-no-pie")
	at := symbols(t, bin)
	var cycle []bolt.Entry
	for _, branch := range [][2]string{
		{"cycle_call", "cycle_f"},
		{"cycle_ret", "cycle_back"},
		{"cycle_back", "cycle_l1"},
		{"cycle_loop", "cycle_l2"},
		{"cycle_loop", "cycle_l2"},
		{"cycle_indirect", "cycle_l3"},
		{"cycle_again", "cycle_start"},
	} {
		from, to := at[branch[0]], at[branch[1]]
		if from == 0 || to == 0 {
			t.Fatal("no address for ", branch)
		}
		cycle = append(cycle, bolt.Entry{From: from, To: to})
	}
	pid := launch(t, bin).Process.Pid
	s := start(t, Options{MaxOverhead: 1}, pid)
	for _, sample := range collect(t, s, 20) {
		if sample.PID != pid || sample.TID != pid || sample.Time == 0 {
			t.Errorf("got a sample of process %d, thread %d, time %d; want process %d", sample.PID, sample.TID, sample.Time, pid)
		}
		if n := len(sample.Entries); n == 0 || n > MaxBranches {
			t.Errorf("got %d entries, want 1 to %d", n, MaxBranches)
		}
		slices.Reverse(sample.Entries)
		if !follows(sample.Entries, cycle) {
			t.Errorf("got entries that are not part of the cycle: %x", sample.Entries)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	stats, _ := s.Stats()
	t.Logf("%+v", stats)
	full := stats.Full > 0 || testenv.InVM() // where steps are slow, the time of a burst ends first
	if stats.Records == 0 || !full || stats.Steps < stats.Records || stats.Bursts < 20 {
		t.Errorf("got statistics %+v, want records, full samples and 20 bursts", stats)
	}
}

// follows reports whether entries follow the cycle, from any start.
func follows(entries, cycle []bolt.Entry) bool {
	for start := range cycle {
		i := 0
		for i < len(entries) && entries[i] == cycle[(start+i)%len(cycle)] {
			i++
		}
		if i == len(entries) {
			return true
		}
	}
	return false
}

var kills = flag.Int("kills", 10, "how often to kill the stepper's parent")

// TestKilled kills the stepper's parent at random moments. The target must survive.
func TestKilled(t *testing.T) {
	pid := launch(t, compile(t, "cycle", "-static", "-no-pie")).Process.Pid
	for i := range *kills {
		stderr := &bytes.Buffer{}
		cmd := exec.Command("/proc/self/exe", relay, strconv.Itoa(pid))
		cmd.Stderr = stderr // the stepper inherits the pipe, so Wait waits for both
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(stdout, make([]byte, 1)); err != nil {
			t.Fatalf("the stepper does not start: %v\n%s", err, stderr)
		}
		time.Sleep(rand.N(25 * time.Millisecond))
		cmd.Process.Kill()
		cmd.Wait()
		if s := stateOf(t, pid); s != 'R' {
			t.Fatalf("after %d kills: got target in state %c, want R\n%s", i+1, s, stderr)
		}
	}
}

// TestClosedOutput closes the pipe to which the stepper reports, as happens between the
// parent's death and the end of the stepper's input. The stepper must go on until its
// input ends. It runs in the session of the test, whose priority it must not change.
func TestClosedOutput(t *testing.T) {
	mayTrace(t)
	group, _ := os.ReadFile("/proc/self/autogroup") // none if the kernel does not schedule by session
	t.Cleanup(func() {
		if now, _ := os.ReadFile("/proc/self/autogroup"); !bytes.Equal(now, group) {
			t.Errorf("got autogroup %q, want %q as before", now, group)
		}
	})
	pid := launch(t, compile(t, "cycle", "-static", "-no-pie")).Process.Pid
	cmd := exec.Command("/proc/self/exe", Subcommand)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	opts := Options{}.withDefaults()
	var first report
	if err := errors.Join(
		gob.NewEncoder(in).Encode(request{Options: &opts, Add: []int{pid}}),
		gob.NewDecoder(out).Decode(&first),
		out.Close(),
	); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * statsInterval)
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Errorf("stepper: %v", err)
	}
	if s := stateOf(t, pid); s != 'R' {
		t.Errorf("got target in state %c, want R", s)
	}
}

// stateOf returns the state of a process.
func stateOf(t *testing.T, pid int) byte {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return stat[bytes.LastIndexByte(stat, ')')+2]
}

// TestSameOutput steps a program with many signals, threads and children, whose output
// must not change. The amount of stepping depends on the load of the machine, so the test
// repeats until all kinds of bursts have occurred.
func TestSameOutput(t *testing.T) {
	bin := compile(t, "busy")
	want, wantCode := runBusy(t, bin, nil)
	var records, signal, sensitive, threads bool
	for deadline := time.Now().Add(testenv.TimeLimit()); !(records && signal && sensitive && threads); {
		if time.Now().After(deadline) {
			t.Fatalf("stepping has not met all of: records %t, signals %t, sensitive places %t, four threads %t", records, signal, sensitive, threads)
		}
		var s *Stepper
		got, code := runBusy(t, bin, func(pid int) {
			s = start(t, Options{MaxOverhead: 4}, pid)
			go follow(t, s, pid)
		})
		s.Close()
		stats, refused := s.Stats()
		t.Logf("%+v %v", stats, refused)
		if got != want || code != wantCode {
			t.Fatalf("got exit code %d, output\n%s\nwithout stepping exit code %d, output\n%s", code, got, wantCode, want)
		}
		records, threads = records || stats.Records > 0, threads || stats.Threads >= 4
		signal, sensitive = signal || stats.Signal > 0, sensitive || stats.Sensitive > 0
	}
}

// follow drains a stepper's samples and adds the descendants of pid.
func follow(t *testing.T, s *Stepper, pid int) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case _, ok := <-s.Samples():
			if !ok {
				return
			}
		case <-tick.C:
			children, err := target.Descendants([]int{pid})
			for _, child := range children {
				err = errors.Join(err, s.Add(child))
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// runBusy runs a program and returns its output and exit code. It calls started while the
// program waits for its input.
func runBusy(t *testing.T, bin string, started func(pid int)) (output string, code int) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, begin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer begin.Close()
	c, err := target.Start([]string{bin}, in, out, out)
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
	if started != nil {
		started(c.PID())
	}
	if _, err := begin.WriteString("g"); err != nil {
		t.Fatal(err)
	}
	code, err = c.Wait()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b), code
}

// TestConfined steps a program that seccomp confines to a few system calls.
func TestConfined(t *testing.T) {
	pid := launch(t, compile(t, "confined")).Process.Pid
	s := start(t, Options{MaxOverhead: 1}, pid)
	collect(t, s, 5)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s := stateOf(t, pid); s != 'R' {
		t.Errorf("got target in state %c, want R", s)
	}
}

// A program that blocks or ignores SIGTRAP still does so after stepping.
func TestTraps(t *testing.T) {
	cmd := launch(t, compile(t, "traps"))
	pid := cmd.Process.Pid
	s := start(t, Options{MaxOverhead: 10}, pid)
	collect(t, s, 40)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	time.Sleep(50 * time.Millisecond) // enough for the program to check
	if s := stateOf(t, pid); s == 'Z' {
		t.Errorf("the target exited: %v", cmd.Wait())
	}
}

func TestIgnoresTrap(t *testing.T) {
	pid := launch(t, compile(t, "ignores")).Process.Pid
	eventually(t, "ignored", func() bool { return ignoresTrap(pid) })
	s := start(t, Options{MaxOverhead: 10}, pid)
	var refused []RefusalError
	eventually(t, "refused", func() bool {
		_, refused = s.Stats()
		return len(refused) > 0
	})
	if !strings.Contains(refused[0].Reason, "ignores SIGTRAP") {
		t.Errorf("got refusals %v, want one of a target that ignores SIGTRAP", refused)
	}
	if !ignoresTrap(pid) {
		t.Error("the target no longer ignores SIGTRAP")
	}
}

func ignoresTrap(pid int) bool {
	s, err := procfs.Process(pid).Status()
	return err == nil && s.SigIgn&trapSignal != 0
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	testenv.Await(t, is, func() string { return "never " + what })
}

// TestStopped stops the target by a signal while it is stepped. It stays stopped until
// SIGCONT.
func TestStopped(t *testing.T) {
	testenv.EveryKernel(t)
	cmd := launch(t, compile(t, "cycle", "-static", "-no-pie"))
	pid := cmd.Process.Pid
	s := start(t, Options{MaxOverhead: 1000}, pid)
	for range 5 {
		collect(t, s, 2)
		cmd.Process.Signal(unix.SIGSTOP)
		await(t, pid, 'T')
		time.Sleep(20 * time.Millisecond) // the stepper checks it several times
		await(t, pid, 'T')                // if the stepper attaches just now, it is in state R or t for a moment
		cmd.Process.Signal(unix.SIGCONT)
		await(t, pid, 'R')
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	await(t, pid, 'R')
}

// await waits until a process is in the given state.
func await(t *testing.T, pid int, want byte) {
	t.Helper()
	testenv.Await(t, func() bool { return stateOf(t, pid) == want }, func() string {
		return fmt.Sprintf("got target in state %c, want %c", stateOf(t, pid), want)
	})
}

// BenchmarkStep measures the cost of stepping for a thread. An operation is one sample.
func BenchmarkStep(b *testing.B) {
	pid := launch(b, compile(b, "cycle", "-static", "-no-pie")).Process.Pid
	s := start(b, Options{MaxOverhead: 0.1}, pid)
	for b.Loop() {
		collect(b, s, 1)
	}
	s.Close()
	stats, _ := s.Stats()
	b.ReportMetric(stats.Held.Seconds()/b.Elapsed().Seconds(), "held")
	b.ReportMetric(float64(stats.Records)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(stats.Held.Nanoseconds())/float64(stats.Steps), "ns/step")
}

func TestAdd(t *testing.T) {
	bin := compile(t, "cycle", "-static", "-no-pie")
	s := start(t, Options{MaxOverhead: 1})
	pid := launch(t, bin).Process.Pid
	if err := s.Add(pid); err != nil {
		t.Fatal(err)
	}
	collect(t, s, 1)
}

// A process that is traced by another tracer is stepped once that tracer is gone.
func TestAddTraced(t *testing.T) {
	held, err := target.Start([]string{compile(t, "cycle", "-static", "-no-pie")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		unix.Kill(held.PID(), unix.SIGKILL)
		held.Close()
	}()
	s := start(t, Options{MaxOverhead: 1})
	if err := s.Add(held.PID()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * rescan) // a slower stepper adds it later
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	collect(t, s, 1)
}

// A dropped process is not stepped until it is added again.
func TestDrop(t *testing.T) {
	pid := launch(t, compile(t, "cycle", "-static", "-no-pie")).Process.Pid
	s := start(t, Options{MaxOverhead: 1}, pid)
	collect(t, s, 1)
	if err := s.Drop(pid); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, func() bool {
		select {
		case <-s.Samples():
			return false
		case <-time.After(10 * rescan):
			return true
		}
	}, func() string { return "the dropped process is still stepped" })
	if err := s.Add(pid); err != nil {
		t.Fatal(err)
	}
	collect(t, s, 1)
}

// Two steppers can share a process.
func TestTwoSteppers(t *testing.T) {
	pid := launch(t, compile(t, "cycle", "-static", "-no-pie")).Process.Pid
	one, other := start(t, Options{MaxOverhead: 1}, pid), start(t, Options{MaxOverhead: 1}, pid)
	for range 10 {
		collect(t, one, 2)
		collect(t, other, 2)
	}
}

func TestRefused(t *testing.T) {
	held, err := target.Start([]string{"sleep", "1000"})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	tests := map[string]struct {
		pid  int
		want string
	}{
		"traced":  {held.PID(), "is already being traced by process"},
		"unknown": {1 << 30, "no such process"},
		"self":    {os.Getpid(), "fulgur itself"},
	}
	if comm, _ := os.ReadFile("/proc/2/comm"); string(comm) == "kthreadd\n" {
		tests["kernel thread"] = struct {
			pid  int
			want string
		}{2, "kernel thread"}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := Start(t.Context(), []int{test.pid}, Options{})
			if err == nil {
				s.Close()
				t.Fatal("got no error")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %q, want it to contain %q", err, test.want)
			}
		})
	}
}

// TestStepperKilled kills the stepper while the target sleeps.
func TestStepperKilled(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	s := start(t, Options{}, cmd.Process.Pid)
	if err := s.cmd.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range s.Samples() {
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), ErrKilled.Error()) {
		t.Errorf("got error %v, want %v", err, ErrKilled)
	}
}

func TestContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cmd := launch(t, compile(t, "cycle", "-static", "-no-pie"))
	s, err := Start(ctx, []int{cmd.Process.Pid}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for range s.Samples() {
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
