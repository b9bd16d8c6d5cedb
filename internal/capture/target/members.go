package target

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
)

// ProcessesOf returns the processes of threads, each once. It omits threads that have exited.
func ProcessesOf(tids []int) []int {
	pids := []int{}
	for _, tid := range tids {
		status, err := procfs.Process(tid).Status()
		if err == nil && !slices.Contains(pids, status.TGID) {
			pids = append(pids, status.TGID)
		}
	}
	return pids
}

// Measured returns the current processes of t, nil for the whole system. members
// returns the members of a target set, and is nil if there is no set yet.
func Measured(t Target, members func() ([]int, error)) ([]int, error) {
	switch t.Scope {
	case System:
		return nil, nil
	case Cgroup:
		pids, err := procfs.CgroupProcesses(t.CgroupPath)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
			return []int{}, nil // the cgroup is gone, or threaded
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
		return nil, fmt.Errorf("find the processes of the target: %w", err)
	}
	return pids, nil
}
