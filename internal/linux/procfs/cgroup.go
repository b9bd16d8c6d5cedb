package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// CgroupProcesses returns the processes in the cgroup v2 directory dir and in the groups
// below it, see cgroup.procs in Documentation/admin-guide/cgroup-v2.rst in the kernel. It
// leaves out groups below dir that end meanwhile, and threaded ones, whose processes the
// root of their domain lists. If that holds for dir itself, the error wraps
// [fs.ErrNotExist], [unix.ENODEV] or [unix.EOPNOTSUPP].
func CgroupProcesses(dir string) ([]int, error) {
	pids := []int{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var found []int
		if err == nil && d.IsDir() {
			found, err = readCgroupProcs(filepath.Join(path, "cgroup.procs"))
			pids = append(pids, found...)
		}
		if path != dir && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP)) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the processes of cgroup %s: %w", dir, err)
	}
	return pids, nil
}

func readCgroupProcs(path string) ([]int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pids, err := parseCgroupProcs(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return pids, nil
}

// parseCgroupProcs parses a cgroup.procs file. It shows processes outside of our pid
// namespace as 0, which are left out.
func parseCgroupProcs(b []byte) ([]int, error) {
	var pids []int
	for field := range bytes.FieldsSeq(b) {
		pid, err := strconv.ParseUint(string(field), 10, 31)
		if err != nil {
			return nil, err
		}
		if pid > 0 {
			pids = append(pids, int(pid))
		}
	}
	return pids, nil
}
