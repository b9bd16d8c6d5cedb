package waiting

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/testenv"
)

// slack is the difference between two measurements of a time that a busy machine may
// cause, in ns.
const slack = int64(5 * time.Millisecond)

// check compares a thread's waiting time with the duration of the calls that wait, which
// the program measures. Even on a busy machine, the waits in a call are not longer than
// the call. For the rest of the call, the thread was on the CPU or preempted.
func (m measured) check(t *testing.T, value, comm string, want int64, functions ...string) {
	t.Helper()
	got := m.sum(t, value, comm, functions...)
	preempted := m.preempted(t, value, comm, functions...)
	elsewhere := m.preempted(t, value, comm) - preempted
	slack := tolerance(want, m.slack())
	if got-preempted > want+slack || got+elsewhere+m.truth.CPU[comm] < want-slack {
		t.Errorf("got %d ns %s of %s in %s, %d of it preempted, want %d; it spent %d ns elsewhere off the CPU and %d on it\n%s",
			got, value, comm, strings.Join(functions, " and "), preempted, want, elsewhere, m.truth.CPU[comm], m.stderr)
	}
}

// preempted adds up a value of a thread's waits for a CPU only, as sum does.
func (m measured) preempted(t *testing.T, value, comm string, functions ...string) (sum int64) {
	t.Helper()
	for _, note := range []string{"[preempted]", "[off-CPU: preempted]"} { // the latter in recordings
		sum += m.sum(t, value, comm, append([]string{note}, functions...)...)
	}
	return sum
}

// The time asleep and the number of sleeps match the program's data, and the reason
// is named.
func TestSleeps(t *testing.T) {
	testenv.EveryKernel(t)
	commands := [][]string{{"offcpu"}, {"profile", "--wall"}}
	if !testenv.InVM() { // flags do not depend on the kernel
		commands = append(commands, []string{"offcpu", "--state", "S"}, []string{"offcpu", "-U"}, []string{"offcpu", "-m", "10000"})
	}
	for _, command := range commands {
		t.Run(strings.Join(command, " "), func(t *testing.T) {
			m := measure(t, "sleeps", command...)
			m.check(t, "off-cpu", "sleeper", m.truth.Slept, "[sleep]")
			if command[0] != "offcpu" {
				return
			}
			// A thread that is preempted before it sleeps may not need to sleep
			// afterwards.
			preempted := m.sum(t, "waits", "sleeper", "[preempted]", "hrtimer_nanosleep")
			got := m.sum(t, "waits", "sleeper", "[sleep]")
			if got > m.truth.Times || got+preempted+m.missed() < m.truth.Times {
				t.Errorf("got %d sleeps, and %d preempted, want %d", got, preempted, m.truth.Times)
			}
			asleep, off := m.sum(t, "sleeping", "sleeper", "[sleep]"), m.sum(t, "off-cpu", "sleeper", "[sleep]")
			if least := got * int64(napTime); asleep < least || asleep > off {
				t.Errorf("got %d ns asleep, of %d ns off the CPU, want at least %d", asleep, off, least)
			}
		})
	}
}

// The time until the measurement begins, in which a command is held before its first
// instruction, does not count as a wait.
func TestNoWaitBeforeStart(t *testing.T) {
	for _, command := range [][]string{{"offcpu"}, {"profile", "--wall"}, {"record"}} {
		m := measure(t, "sleeps", command...)
		off := m.index(t, "off-cpu")
		for _, s := range m.profile.Sample {
			// Afterwards it may wait like any other process.
			if s.Value[off] > 0 && has(s, "ptrace_stop") && !has(s, "[preempted]") {
				t.Errorf("%s: got %v ns in %v, want none before the first instruction", strings.Join(command, " "), s.Value, functions(s))
			}
		}
	}
}

// Waits that are too short, too long or in another state do not count.
func TestFilters(t *testing.T) {
	for _, flags := range [][]string{{"-m", "60000000"}, {"-M", "10000"}, {"--state", "D"}, {"-k"}} {
		m := measure(t, "sleeps", append([]string{"offcpu"}, flags...)...)
		if got := m.sum(t, "waits", "sleeper", "[sleep]"); got != 0 {
			t.Errorf("%s: got %d sleeps of %s, want 0", strings.Join(flags, " "), got, napTime)
		}
	}
}

// A thread that waits for its turn waits as long as the turns of the other threads, which
// end the wait. Waits caused by Go's scheduler are in other functions.
func TestConvoy(t *testing.T) {
	const wait = "fulgur/test/waiting.(*lock).wait"
	m := measure(t, "convoy", "offcpu", "--waker-stacks")
	m.check(t, "off-cpu", "convoy", m.truth.Slept, "[sleep]")
	m.check(t, "off-cpu", "convoy", m.truth.Waited, wait)
	m.check(t, "off-cpu", "convoy", m.truth.Waited, wait, "[futex]")
	futex := m.sum(t, "off-cpu", "convoy", wait, "[futex]")
	// The waker's function occurs only in stacks of wakers.
	if woken := m.sum(t, "off-cpu", "convoy", wait, "[futex]", "futex_wake", "fulgur/test/waiting.(*lock).handOver"); woken > futex || woken < futex-tolerance(futex, m.slack()) {
		t.Errorf("got %d ns ended by the thread that hands over the lock, want %d", woken, futex)
	}
}

// The time off the CPU of two threads that take turns is the rest of their time on it.
func TestPingPong(t *testing.T) {
	const turns = "fulgur/test/waiting.turns"
	m := measure(t, "pingpong", "offcpu")
	// The scheduler decides a moment before the tracepoint reports it.
	const untold = int64(3 * time.Microsecond)
	got, preempted := m.sum(t, "off-cpu", "ping", turns), m.preempted(t, "off-cpu", "ping")
	slack := tolerance(m.truth.Waited, m.slack()+untold*m.truth.Times) + m.truth.Stolen
	if got-preempted > m.truth.Waited+slack || got+preempted < m.truth.Waited-slack {
		t.Errorf("got %d ns off the CPU, and %d preempted, want %d\n%s", got, preempted, m.truth.Waited, m.stderr)
	}
	if got := m.sum(t, "waits", "ping", turns, "[pipe]"); got > m.truth.Times {
		t.Errorf("got %d waits for the pipe, want at most one in each of %d rounds", got, m.truth.Times)
	}
}

// asleep starts a program whose threads sleep all the time, and waits until they sleep.
func asleep(t *testing.T) *os.Process {
	t.Helper()
	sleeper := exec.Command(os.Args[0])
	sleeper.Env = environment(t, "asleep")
	out, err := sleeper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("read from the sleeping program: %q, %v", line, err)
	}
	testenv.Await(t, func() bool { return sleeps(sleeper.Process.Pid) }, func() string { return "the program does not sleep" })
	return sleeper.Process
}

// whereAsleep returns the function that fulgur shows for a thread that sleeps all the
// time. Before Linux 5.18, BPF programs cannot read the stack of a thread that does not
// run.
func whereAsleep(t *testing.T, function string) string {
	t.Helper()
	kernel, err := probe.NewKernel(nil)
	if err != nil {
		t.Fatal(err)
	}
	can, err := offcpu.ReadsSleepers(kernel)
	if err != nil {
		t.Fatal(err)
	}
	if !can {
		return "[before measurement]"
	}
	return function
}

// sleeps reports whether the thread "sleeper" of a process does; see proc_pid_stat(5).
func sleeps(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is valid
	return slices.ContainsFunc(files, func(file string) bool {
		stat, err := os.ReadFile(file)
		return err == nil && bytes.Contains(stat, []byte(" (sleeper) S "))
	})
}

// A thread that sleeps when the measurement begins, and still does when it ends,
// was asleep all the time.
func TestAsleepAllTheTime(t *testing.T) {
	testenv.Root(t)
	sleeper := asleep(t)
	program(t) // is built before the time is measured
	pid := strconv.Itoa(sleeper.Pid)
	for _, target := range [][]string{{"-p", pid}, {"--cgroup", cgroup(t, sleeper.Pid)}} {
		var least time.Duration
		begin := time.Now()
		m := watch(t, func() truth {
			begin := time.Now()
			time.Sleep(200 * time.Millisecond)
			least = time.Since(begin)
			return truth{}
		}, append([]string{"offcpu"}, target...)...)
		took := time.Since(begin)
		if n := m.sum(t, "waits", "sleeper", "[sleep]"); n != 1 {
			t.Errorf("%s: got %d sleeps, want 1", target, n)
		}
		if slept := m.sum(t, "sleeping", "sleeper", "[sleep]"); slept < int64(least) || slept > int64(took) {
			t.Errorf("%s: got %d ns asleep, want %v to %v\n%s", target, slept, least, took, m.stderr)
		}
		where := whereAsleep(t, "fulgur/test/waiting.nap")
		if n := m.sum(t, "waits", "sleeper", where); n != 1 {
			t.Errorf("%s: got %[3]d stacks with %[2]s, want 1\n%[4]s", target, where, n, m.stderr)
		}
	}
}

// The stack of a sleeping thread is complete even if its code has no frame pointers, like
// the machine's C library.
func TestAsleepWithoutFramePointers(t *testing.T) {
	testenv.Root(t)
	sleeper := exec.Command(testenv.Tool(t, "sleep"), "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	}()
	awaitSleep(t, sleeper.Process.Pid)
	file := filepath.Join(t.TempDir(), "out.pb.gz")
	report, err := testenv.Command(t, program(t), "offcpu", "-o", file, "-p", strconv.Itoa(sleeper.Process.Pid), "0.2").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, report)
	}
	m := measured{profile: readProfile(t, file), stderr: string(report)}
	if n := m.sum(t, "waits", "sleep", "[sleep]"); n != 1 {
		t.Errorf("got %d sleeps, want 1\n%s", n, report)
	}
	where := whereAsleep(t, "__libc_start_main")
	n := m.sum(t, "waits", "sleep", where)
	if where == "__libc_start_main" {
		n += m.sum(t, "waits", "sleep", "__libc_start_main_impl") // its name in debug symbols
		if n == 0 {                                               // a static program without symbols, such as busybox
			n = m.sum(t, "waits", "sleep", entryName(t, sleeper.Path))
		}
	}
	if n != 1 {
		t.Errorf("%s is in %d stacks, want 1\n%s\n%s", where, n, report, m.profile)
	}
}

// entryName returns the name of the first function of a program without symbols that is not
// relocated.
func entryName(t *testing.T, path string) string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return fmt.Sprintf("%s+%#x", filepath.Base(path), f.Entry)
}

// awaitSleep waits until a process sleeps.
func awaitSleep(t *testing.T, pid int) {
	t.Helper()
	var stat []byte
	testenv.Await(t, func() (asleep bool) {
		var err error
		if stat, err = os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil {
			t.Fatal(err)
		}
		_, state, found := bytes.Cut(stat, []byte(") "))
		return found && state[0] == 'S'
	}, func() string { return fmt.Sprintf("the process does not sleep: %s", stat) })
}

// cgroup makes a group that contains the process. It skips the test if there is no cgroup
// hierarchy.
func cgroup(t *testing.T, pid int) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		dir, err := os.MkdirTemp(root, "fulgur-waiting-") //nolint:usetesting // a cgroup
		if err != nil {
			t.Fatal(err)
		}
		move := func(to string) error {
			return os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
		}
		t.Cleanup(func() {
			_ = move(root)
			_ = os.Remove(dir)
		})
		if err := move(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	testenv.Skip(t, "needs a cgroup v2 hierarchy")
	return ""
}

// libbpf-tools' offcputime, which runs at the same time, measures the same times for
// threads that take turns.
func TestAgainstOffcputime(t *testing.T) {
	testenv.Root(t)
	peer := exec.Command(testenv.Tool(t, "offcputime"), "-u", "-m", "1000", "--stack-storage-size", "16384", "600")
	var out bytes.Buffer
	peer.Stdout = &out
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- peer.Wait() }()
	defer func() { _ = peer.Process.Kill() }()
	if !awaitLink(t, peer.Process.Pid, ended, "sched_switch", "sched_switch_raw", "sched_switch_btf") {
		testenv.Unsupported(t, "offcputime does not run here: %s", &out)
	}
	m := measure(t, "sleeps", "offcpu", "-m", "1000")
	if err := peer.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	testenv.Receive(t, ended, "offcputime does not exit") // its exit code may report the interrupt
	// For processes that have exited, offcputime shows addresses.
	want, ours := int64(0), m.sum(t, "off-cpu", "sleeper", "")
	// A block of lines for each stack: its frames, "- NAME (PID)", microseconds.
	for block := range strings.SplitSeq(out.String(), "\n\n") {
		if !strings.Contains(block, " sleeper (") {
			continue
		}
		lines := strings.Fields(block)
		n, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", block, err)
		}
		want += n * int64(time.Microsecond)
	}
	if want < m.truth.Times*int64(napTime) { // on a busy machine, its maps are full
		testenv.Unsupported(t, "offcputime lost waits: it saw %d ns of %d sleeps", want, m.truth.Times)
	}
	if d := ours - want; d < -tolerance(want, m.slack()) || d > tolerance(want, m.slack()) {
		t.Errorf("got %d ns, want %d as in offcputime", ours, want)
	}
}
