package target

import (
	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
)

// Load returns the average number of CPUs that process pid has kept busy since it
// started, 0 if it has exited.
func Load(pid int) float64 {
	s, err := procfs.Process(pid).Stat()
	var now unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	age := float64(now.Nano())/float64(procfs.Tick) - float64(s.Start)
	return float64(s.CPU) / max(age, 1)
}
