package target

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
)

// ProcessesOf returns the processes that the threads tids belong to, without those
// of threads that are gone.
func ProcessesOf(tids []int) []int {
	pids := []int{}
	for _, tid := range tids {
		if status, err := procfs.Process(tid).Status(); err == nil {
			pids = append(pids, status.TGID)
		}
	}
	return pids
}

// Measured returns the processes that t is now, nil for all of the system. members
// returns those of a set of targets, nil if there is none yet.
func Measured(t Target, members func() ([]int, error)) ([]int, error) {
	switch t.Scope {
	case System:
		return nil, nil
	case Cgroup:
		pids, err := procfs.CgroupProcesses(t.CgroupPath)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
			return []int{}, nil // it has ended, or has threads only
		}
		return pids, err
	case Threads:
		return ProcessesOf(t.TIDs), nil
	}
	if members == nil {
		return t.PIDs, nil
	}
	pids, err := members()
	if err != nil {
		return nil, fmt.Errorf("find what is measured: %w", err)
	}
	return pids, nil
}
