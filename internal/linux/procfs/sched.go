package procfs

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// Sched has the fields of a schedstat file, see Documentation/scheduler/sched-stats.rst in the kernel.
type Sched struct {
	// CPU is the time on a CPU, and Delay that of waiting for one.
	CPU, Delay time.Duration
	// Turns is how often the thread got a CPU.
	Turns uint64
}

// SchedCPU returns the CPU time of a thread from its schedstat file, to the nanosecond,
// and 0 if the kernel was built without CONFIG_SCHED_INFO.
func (t Task) SchedCPU() (time.Duration, error) {
	s, err := t.Sched()
	return s.CPU, err
}

// Sched reads the task's schedstat file. All fields are 0 if the kernel was built without CONFIG_SCHED_INFO.
func (t Task) Sched() (Sched, error) { return read(t, "schedstat", ParseSched) }

// ParseSched parses a schedstat file: "CPU-TIME RUN-DELAY TURNS", the times in ns.
func ParseSched(b []byte) (s Sched, err error) {
	fields := bytes.Fields(b)
	if len(fields) != 3 {
		return s, fmt.Errorf("malformed schedstat line %q", b)
	}
	var values [3]uint64
	for i, f := range fields {
		if values[i], err = strconv.ParseUint(string(f), 10, 63); err != nil {
			return s, fmt.Errorf("malformed schedstat line %q: %w", b, err)
		}
	}
	return Sched{time.Duration(values[0]), time.Duration(values[1]), values[2]}, nil
}
