package procfs

import (
	"os"
	"strconv"
	"strings"
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
