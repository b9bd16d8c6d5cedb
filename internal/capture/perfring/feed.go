package perfring

import "fulgur/internal/linux/perfevent"

// Feed delivers the samples of a target, and what happens to its processes: threads that start and end, their names, and
// the programs and code that they map.
type Feed interface {
	// Threads returns the threads of the target at the start, with their processes.
	Threads() map[int]int
	// Enable starts to sample, and Disable ends it.
	Enable() error
	Disable() error
	// Take returns the records since the last call, and the number of samples that were lost meanwhile. The caller may keep
	// them. If there are records of mappings before a sample, it returns them no later.
	Take() (records []perfevent.Record, lost uint64, err error)
	// Total returns the number of events between Enable and Disable, sampled or not: for clocks, the CPU time in ns. It is 0
	// if it is not known.
	Total() uint64
	// FollowCPUs is called when CPUs come online or go offline.
	FollowCPUs(online []int) error
	Close() error
}
