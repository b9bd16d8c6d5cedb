package target

import (
	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
)

// Load returns how many CPUs process pid kept busy on average since it began, 0 if
// it is gone.
func Load(pid int) float64 {
	s, err := procfs.Process(pid).Stat()
	var now unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	age := float64(now.Nano())/float64(procfs.Tick) - float64(s.Start)
	return float64(s.CPU) / max(age, 1)
}
