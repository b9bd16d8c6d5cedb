package target

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
)

// ProcessesOf returns the processes of threads. It omits threads that have exited.
func ProcessesOf(tids []int) []int {
	pids := []int{}
	for _, tid := range tids {
		if status, err := procfs.Process(tid).Status(); err == nil {
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
		return nil, fmt.Errorf("find what is measured: %w", err)
	}
	return pids, nil
}
