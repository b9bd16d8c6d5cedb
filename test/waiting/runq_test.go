package waiting

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// TestRunQueue compares the run-queue latency of two programs that share a CPU with the
// kernel's own account of it, in /proc/PID/schedstat. The measurement contains the time
// between two readings, and lies between two others.
func TestRunQueue(t *testing.T) {
	testenv.OneKernel(t)
	testenv.Root(t)
	var pids []int
	for range 2 {
		cmd := exec.Command(testenv.Tool(t, "yes"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed
		})
		pids = append(pids, cmd.Process.Pid)
	}
	var all, first unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			first.Set(cpu)
			break
		}
	}
	for _, pid := range pids {
		if err := unix.SchedSetaffinity(pid, &first); err != nil {
			t.Fatal(err)
		}
	}
	program(t) // is built before the waits are measured
	var inside int64
	before := runDelay(t, pids)
	m := watch(t, func() truth {
		awaitTurns(t, pids) // so that all waits began in the measurement
		begin := runDelay(t, pids)
		testenv.Await(t, func() bool {
			inside = runDelay(t, pids) - begin
			return inside >= int64(300*time.Millisecond)
		}, func() string { return fmt.Sprintf("two programs on one CPU waited for %d ns, want 300 ms", inside) })
		return truth{}
	}, "runq", "-p", fmt.Sprintf("%d,%d", pids[0], pids[1]))
	awaitTurns(t, pids) // the kernel counts waits when they end
	outside := runDelay(t, pids) - before
	// A wait whose beginning or end the kernel did not report may have had any length.
	complete := m.missed()+m.skipped() == 0
	got := m.sum(t, "runnable", "yes")
	t.Logf("got %d ns in the run queue, the kernel %d to %d; complete: %t", got, inside, outside, complete)
	if got == 0 || complete && (got < inside-tolerance(inside, slack) || got > outside+tolerance(outside, slack)) {
		t.Errorf("got %d ns in the run queue, want from %d to %d, as the kernel counts\n%s", got, inside, outside, m.stderr)
	}
	for _, s := range m.profile.Sample {
		if !slices.Contains(functions(s), "[preempted]") {
			t.Errorf("got stack %v, want only preempted threads", functions(s))
		}
	}
}

// schedstat returns how long a process of one thread has waited for a CPU, in ns, and how
// often it got one: the second and the third number of /proc/PID/schedstat.
func schedstat(t *testing.T, pid int) (waited, turns int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat")
	if errors.Is(err, os.ErrNotExist) {
		testenv.Unsupported(t, "the kernel has no schedstat")
	}
	var ran int64
	if _, err := fmt.Sscan(string(b), &ran, &waited, &turns); err != nil {
		t.Fatal(err)
	}
	return waited, turns
}

// runDelay returns how long processes of one thread have waited for a CPU, in ns.
func runDelay(t *testing.T, pids []int) (sum int64) {
	t.Helper()
	for _, pid := range pids {
		waited, _ := schedstat(t, pid)
		sum += waited
	}
	return sum
}

// awaitTurns waits until each process has waited for a CPU and got one.
func awaitTurns(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		_, before := schedstat(t, pid)
		testenv.Await(t, func() bool {
			_, now := schedstat(t, pid)
			return now > before+1
		}, func() string { return fmt.Sprintf("process %d did not get a CPU twice", pid) })
	}
}
