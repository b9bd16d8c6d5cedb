package target

import "fulgur/internal/linux/procfs"

// Load returns the average number of CPUs that process pid has kept busy since it
// started, 0 if it has exited.
func Load(pid int) float64 {
	s, err := procfs.Process(pid).Stat()
	if err != nil {
		return 0
	}
	age, err := s.Age()
	if err != nil {
		return 0
	}
	return float64(s.CPU) / max(float64(age)/float64(procfs.Tick), 1)
}
