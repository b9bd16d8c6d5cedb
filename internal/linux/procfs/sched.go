package procfs

import (
	"bytes"
	"strconv"
	"time"
)

// SchedCPU returns the CPU time of a thread from its schedstat file, to the nanosecond,
// and 0 if the kernel was built without CONFIG_SCHED_INFO.
func (t Task) SchedCPU() (time.Duration, error) { return read(t, "schedstat", parseSchedstat) }

// parseSchedstat parses "CPU-TIME RUN-DELAY SLICES", the times in ns, see
// Documentation/scheduler/sched-stats.rst in the kernel.
func parseSchedstat(b []byte) (time.Duration, error) {
	first, _, _ := bytes.Cut(b, []byte{' '})
	ns, err := strconv.ParseUint(string(first), 10, 63)
	return time.Duration(ns), err
}
