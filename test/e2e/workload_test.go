package e2e

import (
	"time"

	"golang.org/x/sys/unix"
)

var sink uint64

// The loops stand in the functions that are looked for: a leaf without a frame
// of its own would hide its caller from a walk by frame pointers, as the race
// detector's do.

//go:noinline
//go:norace
func long(n int) {
	for i := range 3 * n {
		sink = sink*31 + uint64(i)
	}
}

//go:noinline
//go:norace
func short(n int) {
	for i := range n {
		sink = sink*31 + uint64(i)
	}
}

// workload spends three quarters of its time in long, the rest in short: for
// ever, or "brief", half a second, or "20ms", that much CPU time.
func workload(mode string) {
	more := func() bool { return true }
	switch mode {
	case "brief":
		end := time.Now().Add(500 * time.Millisecond)
		more = func() bool { return time.Now().Before(end) }
	case "20ms":
		end := cpuTime() + 20*time.Millisecond
		more = func() bool { return cpuTime() < end }
	}
	for more() {
		long(100000)
		short(100000)
	}
}

// cpuTime returns the CPU time that this process has used.
func cpuTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts) // every kernel has it
	return time.Duration(ts.Nano())
}
