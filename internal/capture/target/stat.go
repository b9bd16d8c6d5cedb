package target

import (
	"bytes"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
)

// pfKthread is PF_KTHREAD of the kernel's include/linux/sched.h.
const pfKthread = 0x00200000

// stat is what Check needs of a task's /proc/TID/stat.
type stat struct {
	comm   string
	state  byte
	parent int
	flags  uint64
	// threads of the task's process, the exited leader included.
	threads int
	// used is the CPU time that the process has used, start when it began
	// after the machine, in ticks of a hundredth of a second.
	used, start uint64
}

func (s stat) kernelThread() bool { return s.flags&pfKthread != 0 }

// IsKernelThread reports whether a process is a thread of the kernel.
func IsKernelThread(pid int) bool {
	s, err := readStat(pid)
	return err == nil && s.kernelThread()
}

// exited reports whether the task is a zombie or past it. A process whose
// first thread has exited lives on in the others, see ended.
func (s stat) exited() bool { return s.state == 'Z' || s.state == 'X' }

// ended reports whether all of the process whose first thread this is has
// exited.
func (s stat) ended() bool { return s.exited() && s.threads <= 1 }

func readStat(tid int) (stat, error) {
	b, err := procfs.ReadFile(tid, "stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat reads the line described under /proc/pid/stat in proc(5). The
// task chooses its comm, which may hold spaces and parentheses: it ends at
// the last ")".
func parseStat(b []byte) (stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("malformed stat line %q", b)
	}
	const state, parent, flags, user, system, threads, start = 0, 1, 6, 11, 12, 17, 19 // positions after comm
	fields := bytes.Fields(b[end+1:])
	if len(fields) <= start || len(fields[state]) != 1 {
		return stat{}, fmt.Errorf("malformed stat line %q", b)
	}
	n, err := strconv.ParseUint(string(fields[flags]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("flags in stat line: %w", err)
	}
	p, err := strconv.Atoi(string(fields[parent]))
	if err != nil {
		return stat{}, fmt.Errorf("parent in stat line: %w", err)
	}
	t, err := strconv.Atoi(string(fields[threads]))
	if err != nil {
		return stat{}, fmt.Errorf("threads in stat line: %w", err)
	}
	var ticks [3]uint64
	for i, field := range []int{user, system, start} {
		if ticks[i], err = strconv.ParseUint(string(fields[field]), 10, 64); err != nil {
			return stat{}, fmt.Errorf("times in stat line: %w", err)
		}
	}
	return stat{
		comm: string(b[open+1 : end]), state: fields[state][0],
		parent: p, flags: n, threads: t, used: ticks[0] + ticks[1], start: ticks[2],
	}, nil
}

// Load returns how many CPUs process pid kept busy on average since it began, 0 if
// it is gone.
func Load(pid int) float64 {
	s, err := readStat(pid)
	var now unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	age := float64(now.Nano())/1e7 - float64(s.start)
	return float64(s.used) / max(age, 1)
}
