// Package smoke checks the properties of the rig's machines that the privileged tests of
// other packages need.
package smoke

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// cpu1 is the switch of a CPU that can be taken offline.
const cpu1 = "/sys/devices/system/cpu/cpu1/online"

func TestKernelBTF(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.VM(t)
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var task *btf.Struct
	if err := spec.TypeByName("task_struct", &task); err != nil {
		t.Error(err)
	}
}

func TestFileSystems(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.VM(t)
	for _, path := range []string{
		"/proc/self/maps",
		"/proc/kallsyms",
		"/sys/kernel/tracing/events/sched/sched_switch/id",
		"/sys/kernel/debug/tracing/events/sched/sched_switch/id",
		"/sys/fs/cgroup/cgroup.procs",
		"/sys/fs/bpf",
		"/dev/null",
	} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	write(t, filepath.Join(t.TempDir(), "new"), "")
}

func TestLoopback(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.VM(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestShell(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.VM(t)
	out, err := exec.Command("sh", "-c", "echo $((6 * 7)) | cat").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "42" {
		t.Errorf("shell printed %q, %v, want 42", out, err)
	}
}

// TestOrphans checks that process 1 reaps orphans.
func TestOrphans(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.VM(t)
	out, err := exec.Command("sh", "-c", "true & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	proc := "/proc/" + strings.TrimSpace(string(out))
	testenv.Await(t, func() bool {
		_, err := os.Stat(proc)
		return os.IsNotExist(err)
	}, func() string { return proc + " was not reaped" })
}

func TestCPUClock(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.VM(t)
	fd := cpuClock(t, 0)
	defer unix.Close(fd)
	var count [8]byte
	if _, err := unix.Read(fd, count[:]); err != nil {
		t.Fatal(err)
	}
	if count == [8]byte{} {
		t.Error("cpu-clock = 0, want more")
	}
}

func TestHotplug(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.VM(t)
	if n := runtime.NumCPU(); n < 2 {
		t.Fatalf("got %d CPUs, want at least 2", n)
	}
	write(t, cpu1, "0")
	if fd, err := openCPUClock(1); !errors.Is(err, unix.ENODEV) {
		t.Errorf("perf_event_open on an offline CPU = %d, %v, want ENODEV", fd, err)
	}
	write(t, cpu1, "1")
	unix.Close(cpuClock(t, 1))
}

// cpuClock opens a counter of cpu-clock on one CPU.
func cpuClock(t *testing.T, cpu int) int {
	t.Helper()
	fd, err := openCPUClock(cpu)
	if err != nil {
		t.Fatalf("open cpu-clock on CPU %d: %v", cpu, err)
	}
	return fd
}

func openCPUClock(cpu int) (int, error) {
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   unix.PERF_ATTR_SIZE_VER0,
	}
	return unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
}

func write(t *testing.T, path, s string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
		t.Fatal(err)
	}
}
