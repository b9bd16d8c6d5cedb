package target

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
)

// CgroupProcesses returns the processes in the cgroup v2 directory dir and in the
// groups below it. Those of groups that end meanwhile are left out.
func CgroupProcesses(dir string) ([]int, error) {
	pids := []int{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return gone(err)
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return gone(err)
		}
		for _, field := range bytes.Fields(b) {
			// A process of a pid namespace that is not ours is shown as 0.
			if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the processes of cgroup %s: %w", dir, err)
	}
	return pids, nil
}

// gone returns err unless it says that a group has ended, or that it has no
// processes of its own but only threads.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// ProcessesOf returns the processes that the threads tids belong to, without those
// of threads that are gone.
func ProcessesOf(tids []int) []int {
	pids := []int{}
	for _, tid := range tids {
		status, err := procfs.ReadFile(tid, "status")
		if err != nil {
			continue
		}
		for line := range bytes.Lines(status) {
			value, ok := bytes.CutPrefix(line, []byte("Tgid:"))
			if pid, err := strconv.Atoi(string(bytes.TrimSpace(value))); ok && err == nil {
				pids = append(pids, pid)
			}
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
		return CgroupProcesses(t.CgroupPath)
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
