package procfs

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// Sched is what the scheduler knows about a thread.
type Sched struct {
	// CPU is the time that it has run, to the nanosecond, and Delay the time that it has waited for a CPU, until
	// it last got one.
	CPU, Delay time.Duration
}

// Sched reads a thread's schedstat file. All is 0 if the kernel was built without CONFIG_SCHED_INFO.
func (t Task) Sched() (Sched, error) { return read(t, "schedstat", parseSchedstat) }

// parseSchedstat parses "CPU-TIME RUN-DELAY SLICES", the times in ns, see
// Documentation/scheduler/sched-stats.rst in the kernel.
func parseSchedstat(b []byte) (Sched, error) {
	var times [2]time.Duration
	fields := bytes.Fields(b)
	if len(fields) < len(times) {
		return Sched{}, fmt.Errorf("schedstat %q has fewer than two numbers", b)
	}
	for i := range times {
		ns, err := strconv.ParseUint(string(fields[i]), 10, 63)
		if err != nil {
			return Sched{}, err
		}
		times[i] = time.Duration(ns)
	}
	return Sched{CPU: times[0], Delay: times[1]}, nil
}
