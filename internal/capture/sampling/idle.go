package sampling

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// userTick is the unit of /proc/stat, whatever the kernel's own is: USER_HZ is 100 on
// all that we run on.
const userTick = uint64(10 * time.Millisecond)

// idleTimes returns for how long each online CPU had nothing to run since it was
// booted, in ns; nothing where the kernel does not tell.
func idleTimes() map[int]uint64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	return parseIdleTimes(string(b))
}

// parseIdleTimes reads the lines "cpu0 USER NICE SYSTEM IDLE IOWAIT ..." of proc(5). A
// CPU whose tasks all wait for I/O is as idle as another.
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
			times[cpu] += ticks * userTick
		}
	}
	return times
}
