package perfevent

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// maxCPU bounds the CPU numbers accepted, so that a list cannot exhaust memory. The
// largest kernels are built for 8192 CPUs.
const maxCPU = 1 << 16

// ParseCPUList parses a list of CPUs in the kernel's notation, "0-3,8,10-11", and returns
// their numbers in ascending order without duplicates. An empty list has no CPUs.
func ParseCPUList(s string) ([]int, error) {
	var cpus []int
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		lo, err := strconv.ParseUint(first, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("CPU list %q: %w", s, err)
		}
		hi, err := strconv.ParseUint(last, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("CPU list %q: %w", s, err)
		}
		if hi < lo || hi >= maxCPU {
			return nil, fmt.Errorf("CPU list %q: bad range %q", s, part)
		}
		if uint64(len(cpus))+hi-lo >= maxCPU {
			return nil, fmt.Errorf("CPU list %q: more than %d CPUs", s, maxCPU)
		}
		for cpu := lo; cpu <= hi; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

// OnlineCPUs returns the numbers of the online CPUs in ascending order.
func OnlineCPUs() ([]int, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, fmt.Errorf("find online CPUs: %w", err)
	}
	return ParseCPUList(string(b))
}
