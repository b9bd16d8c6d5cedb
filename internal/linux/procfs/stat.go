package procfs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Tick is the unit of CPU times in /proc, whatever the kernel's own is: USER_HZ is 100 on
// all architectures that fulgur runs on.
const Tick = 10 * time.Millisecond

// Stat has fields of /proc/PID/stat, see proc_pid_stat(5).
type Stat struct {
	// Comm is the name of the thread.
	Comm string
	// State is its state, as "R".
	State byte
	// Parent is the ID of the parent process.
	Parent int
	// KernelThread is set for threads of the kernel.
	KernelThread bool
	// Threads is the number of the process's threads, including a first thread that
	// has exited.
	Threads int
	// CPU is the CPU time used in user and kernel mode, in units of [Tick]: of all
	// threads for [Process], of one thread for [Thread].
	CPU uint64
	// ChildrenCPU is the CPU time of children that have exited, and of their children, if
	// their parents have waited for them.
	ChildrenCPU uint64
	// Start is the time of the start after the boot, in units of [Tick].
	Start uint64
	// Size is that of the process's virtual memory in bytes. CodeStart and StackStart are addresses in it, 0 if this process
	// may not trace the task. They tell programs apart: another program has others, unless the kernel does not randomize
	// addresses.
	Size, CodeStart, StackStart uint64
	// Processor is the CPU on which the thread ran last.
	Processor int
}

// Stat reads the task's stat file.
func (t Task) Stat() (Stat, error) { return read(t, "stat", ParseStat) }

// Age returns the time since the start, to [Tick].
func (t Task) Age() (time.Duration, error) {
	s, err := t.Stat()
	if err != nil {
		return 0, err
	}
	return s.Age()
}

// Age is [Task.Age] of a process with that stat file.
func (s Stat) Age() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(now.Nano()) - time.Duration(s.Start)*Tick, nil
}

// Exited reports whether the thread is a zombie or past it. A process whose first
// thread has exited goes on in the others, see [Stat.Ended].
func (s Stat) Exited() bool { return s.State == 'Z' || s.State == 'X' }

// Ended reports whether the process has exited, if s is of its first thread.
func (s Stat) Ended() bool { return s.Exited() && s.Threads <= 1 }

// kthread is PF_KTHREAD of the kernel's include/linux/sched.h.
const kthread = 0x00200000

// ParseStat parses a /proc/PID/stat file. A program chooses its comm, which may hold
// spaces and parentheses: it ends at the last ")".
func ParseStat(b []byte) (Stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("malformed stat line %q", b)
	}
	const state, parent, flags, user, system, childUser, childSystem, threads, start = 3, 4, 9, 14, 15, 16, 17, 20, 22
	const size, codeStart, stackStart, processor = 23, 26, 28, 39 // of proc_pid_stat(5)
	const first = state
	fields := bytes.Fields(b[end+1:])
	if len(fields) <= start-first || len(fields[0]) != 1 {
		return Stat{}, fmt.Errorf("malformed stat line %q", b)
	}
	var err error
	number := func(field int) uint64 {
		n, e := strconv.ParseUint(string(fields[field-first]), 10, 62)
		if e != nil && err == nil {
			err = fmt.Errorf("field %d of stat line: %w", field, e)
		}
		return n
	}
	s := Stat{
		Comm: string(b[open+1 : end]), State: fields[0][0], Parent: int(number(parent)),
		KernelThread: number(flags)&kthread != 0, Threads: int(number(threads)),
		CPU: number(user) + number(system), ChildrenCPU: number(childUser) + number(childSystem), Start: number(start),
	}
	if len(fields) > processor-first {
		s.Size, s.CodeStart, s.StackStart, s.Processor = number(size), number(codeStart), number(stackStart), int(number(processor))
	}
	if err != nil {
		return Stat{}, err
	}
	return s, nil
}
