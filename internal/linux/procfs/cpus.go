package procfs

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"
)

// IdleTimes returns for how long each online CPU has had nothing to run since boot, in
// ns. A CPU whose tasks all wait for I/O counts as idle.
func IdleTimes() (map[int]uint64, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, err
	}
	return parseIdleTimes(string(b)), nil
}

// parseIdleTimes parses the lines "cpu0 USER NICE SYSTEM IDLE IOWAIT ..." of /proc/stat,
// see proc_stat(5).
func parseIdleTimes(stat string) map[int]uint64 {
	times := map[int]uint64{}
	for line := range strings.Lines(stat) {
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		number, ok := strings.CutPrefix(fields[0], "cpu")
		cpu, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue // the sum of all CPUs, or another line
		}
		for _, field := range fields[4:6] {
			ticks, _ := strconv.ParseUint(field, 10, 64) // the kernel writes numbers
			times[cpu] += ticks * uint64(Tick)
		}
	}
	return times
}

// ContextSwitches returns how often the CPUs have switched from one thread to another since
// boot.
func ContextSwitches() (uint64, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseContextSwitches(string(b))
}

// parseContextSwitches parses the line "ctxt N" of /proc/stat.
func parseContextSwitches(stat string) (uint64, error) {
	for line := range strings.Lines(stat) {
		if n, ok := strings.CutPrefix(line, "ctxt "); ok {
			return strconv.ParseUint(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, errors.New("/proc/stat: no line ctxt")
}

// BusyTime returns for how long the CPUs have run something since boot, in sum.
func BusyTime() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusyTime(string(b)), nil
}

// parseBusyTime parses the line "cpu  USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ ..." of
// /proc/stat. The time of virtual machines is part of USER and NICE.
func parseBusyTime(stat string) (sum time.Duration) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	for _, i := range []int{1, 2, 3, 6, 7} {
		if i < len(fields) {
			ticks, _ := strconv.ParseUint(fields[i], 10, 48) // the kernel writes numbers
			sum += time.Duration(ticks) * Tick
		}
	}
	return sum
}
