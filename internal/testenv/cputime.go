package testenv

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns the CPU time that all threads of a process have used. Unlike the work
// of a program in a second, its work in a second of CPU time does not depend on the load
// of the machine.
func CPUTime(pid int) (time.Duration, error) {
	// The clock of a process is CPUCLOCK_SCHED of clock_getcpuclockid(3), which is exact,
	// unlike the ticks in /proc.
	const sched = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &ts); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// AwaitCPUTime returns when a process has used the given amount of additional CPU time.
func AwaitCPUTime(t testing.TB, pid int, more time.Duration) {
	t.Helper()
	const patience = 5 * time.Minute
	begin, err := CPUTime(pid)
	for end := time.Now().Add(patience); err == nil; time.Sleep(min(more/10, 5*time.Millisecond)) {
		var now time.Duration
		if now, err = CPUTime(pid); err == nil && now-begin > more {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %d has not used %v of CPU time in %v", pid, more, patience)
		}
	}
	t.Fatal(err)
}
