package events

import (
	"slices"
	"testing"

	"fulgur/internal/bpf"
)

// syscallProbe returns a probe of tracepoints as [Resolver] finds it.
func syscallProbe(names ...string) *Probe {
	p := &Probe{ByPoint: true, rawSyscalls: map[string]uint64{"sys_enter": 1, "sys_exit": 2}}
	for i, name := range names {
		p.Points = append(p.Points, Point{Name: name, ID: uint64(100 + i)})
	}
	p.unite()
	return p
}

// Tracepoints of raw_syscalls stand for those of system calls with a known number.
func TestBySyscall(t *testing.T) {
	p := syscallProbe("sched:sched_switch", "syscalls:sys_enter_getpid", "syscalls:sys_enter_newer", "syscalls:sys_exit_getpid")
	want := []AttachPoint{
		{"sched:sched_switch", 100, 0}, {"syscalls:sys_enter_newer", 102, 2 << 32},
		{"raw_syscalls:sys_enter", 1, bpf.SyscallsCookie | 2}, {"raw_syscalls:sys_exit", 2, bpf.SyscallsCookie | 3},
	}
	if got := p.Tracepoints(1); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	calls := p.Syscalls(1)
	for key, cookie := range calls {
		if direction := key.Set & 1; key.Set&^1 != 2 || cookie != uint64(1+2*direction)<<32 {
			t.Errorf("got %v: %#x", key, cookie)
		}
	}
	if len(calls) != 2 {
		t.Errorf("got %d calls, want 2", len(calls))
	}
	p.AttachEach()
	if got := p.Tracepoints(1); len(got) != 4 || got[3] != (AttachPoint{"syscalls:sys_exit_getpid", 103, 3 << 32}) {
		t.Errorf("got %v, want each tracepoint", got)
	}
	if len(p.Syscalls(1)) != 0 {
		t.Error("got calls that nothing stands for")
	}
}

// Programs are attached to some tracepoints of system calls, and to raw_syscalls in place of
// many. Others do not count.
func TestManySyscalls(t *testing.T) {
	names := slices.Repeat([]string{"sched:sched_switch", "syscalls:sys_enter_newer"}, 100)
	for range singleSyscalls / 2 {
		names = append(names, "syscalls:sys_enter_getpid", "syscalls:sys_exit_getpid")
	}
	r := new(Resolver)
	if !r.takeSyscalls(syscallProbe(names...)) {
		t.Errorf("%d tracepoints are many, want few", singleSyscalls)
	}
	if new(Resolver).takeSyscalls(syscallProbe(append(names, "syscalls:sys_enter_read")...)) {
		t.Errorf("%d tracepoints are few, want many", singleSyscalls+1)
	}
	if r.takeSyscalls(syscallProbe("syscalls:sys_enter_read")) {
		t.Errorf("%d tracepoints of two probes are few, want many", singleSyscalls+1)
	}
	if !r.takeSyscalls(syscallProbe("sched:sched_switch")) {
		t.Error("a tracepoint of no system call is many, want few")
	}
}
