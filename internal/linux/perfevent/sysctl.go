package perfevent

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// MaxSampleRate returns sysctl kernel.perf_event_max_sample_rate: the highest sampling
// frequency of an event, in Hz per CPU. The kernel lowers it when sampling interrupts
// take too long.
func MaxSampleRate() (uint64, error) {
	return readUint("/proc/sys/kernel/perf_event_max_sample_rate")
}

// MaxStack returns sysctl kernel.perf_event_max_stack: the maximum number of frames that
// the kernel walks of one kernel or user stack.
func MaxStack() (int, error) {
	n, err := readUint("/proc/sys/kernel/perf_event_max_stack")
	return int(n), err
}

// readUint reads a file that holds a single decimal number.
func readUint(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return n, nil
}
