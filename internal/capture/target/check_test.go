package target

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// zombie returns the pid of a process that has exited and has not been reaped.
func zombie(t *testing.T) int {
	cmd := exec.Command("true")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	// The output ends before the process exits, so poll its state.
	_, _ = out.Read(make([]byte, 1))
	testenv.Await(t, func() bool {
		s, err := procfs.Process(cmd.Process.Pid).Stat()
		if err != nil {
			t.Fatal(err)
		}
		return s.Exited()
	}, func() string { return "the process has not exited" })
	return cmd.Process.Pid
}

// otherThread returns a thread of this process, not the first one.
func otherThread(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil && tid != os.Getpid() {
			return tid
		}
	}
	t.Fatal("got only one thread")
	return 0
}

func TestCheck(t *testing.T) {
	self := os.Getpid()
	other := otherThread(t)
	tests := map[string]struct {
		target  Target
		want    error
		message string
	}{
		"system":              {target: Target{}},
		"own process":         {target: Target{Scope: Processes, PIDs: []int{self}}},
		"own thread":          {target: Target{Scope: Threads, TIDs: []int{other}}},
		"unknown pid":         {target: Target{Scope: Processes, PIDs: []int{self, 1 << 30}}, want: ErrNoTask, message: "process 1073741824: not found"},
		"unknown tid":         {target: Target{Scope: Threads, TIDs: []int{1 << 30}}, want: ErrNoTask, message: "thread 1073741824: not found"},
		"thread as pid":       {target: Target{Scope: Processes, PIDs: []int{other}}, want: ThreadError{TID: other, PID: self}, message: "is a thread of process"},
		"zombie":              {target: Target{Scope: Processes, PIDs: []int{zombie(t)}}, want: ErrNotFound, message: "has exited"},
		"some of a container": {target: Target{Scope: Processes, Named: profile.GroupContainer, PIDs: []int{1 << 30, self, 1 << 30}}},
		"none of a container": {target: Target{Scope: Processes, Named: profile.GroupContainer, PIDs: []int{1 << 30, 1<<30 + 1}}, want: ErrNoTask},
		"CPU 0":               {target: Target{CPUs: []int{0}}},
		"unknown CPU":         {target: Target{CPUs: []int{1 << 20}}, want: ErrNotFound, message: "CPU 1048576"},
		"no such cgroup":      {target: Target{Scope: Cgroup, CgroupPath: "/nonexistent"}, want: ErrNoCgroup, message: "/nonexistent"},
		"no cgroup":           {target: Target{Scope: Cgroup, CgroupPath: t.TempDir()}, want: ErrNotCgroup, message: "is not a cgroup v2 directory"},
		"empty cgroup path":   {target: Target{Scope: Cgroup}, want: ErrNotFound},
		"below a plain file":  {target: Target{Scope: Cgroup, CgroupPath: "/proc/version/x"}, want: syscall.ENOTDIR},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := Check(test.target)
			if !errors.Is(err, test.want) {
				t.Fatalf("Check(%v) = %v, want %v", test.target, err, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), test.message) {
				t.Errorf("got message %q, want it to contain %q", err, test.message)
			}
		})
	}
}

func TestCheckKernelThread(t *testing.T) {
	const kthreadd = 2
	if s, err := procfs.Process(kthreadd).Stat(); err != nil || !s.KernelThread {
		testenv.Skip(t, "needs the initial PID namespace: pid 2 is not a kernel thread")
	}
	for _, target := range []Target{{PIDs: []int{kthreadd}}, {TIDs: []int{kthreadd}}} {
		if err := Check(target); !errors.Is(err, ErrKernelThread) {
			t.Errorf("Check(%+v) = %v, want %v", target, err, ErrKernelThread)
		}
	}
}

func TestCheckCgroup(t *testing.T) {
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(dir + "/cgroup.controllers"); err != nil {
			continue
		}
		if err := Check(Target{Scope: Cgroup, CgroupPath: dir}); err != nil {
			t.Error(err)
		}
		if err := Check(Target{Scope: Cgroup, CgroupPath: dir + "/cgroup.controllers"}); !errors.Is(err, ErrNotCgroup) {
			t.Errorf("a file in a cgroup: got %v, want %v", err, ErrNotCgroup)
		}
		return
	}
	testenv.Skip(t, "needs cgroup v2 mounted below /sys/fs/cgroup")
}

func TestString(t *testing.T) {
	tests := map[string]Target{
		"whole system":              {},
		"whole system on CPUs 0, 2": {CPUs: []int{0, 2}},
		"pid 1 with children":       {Scope: Processes, PIDs: []int{1}, Children: true},
		"pids 1, 2":                 {Scope: Processes, PIDs: []int{1, 2}},
		"thread 3 on CPU 1":         {Scope: Threads, TIDs: []int{3}, CPUs: []int{1}},
		"cgroup /a":                 {Scope: Cgroup, CgroupPath: "/a"},
		"command, pid 4":            {Scope: Command, PIDs: []int{4}},
	}
	for want, target := range tests {
		if got := target.String(); got != want {
			t.Errorf("%+v: got %q, want %q", target, got, want)
		}
	}
}
