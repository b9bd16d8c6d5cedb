package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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

// MemoryLimit is a limit on the memory of a cgroup.
type MemoryLimit struct {
	// Bytes is the limit, 0 for none.
	Bytes uint64
	// File is the path of the file that sets it.
	File string
}

// SmallestMemoryLimit returns the lowest limit among a task's cgroup and its ancestors, as far as mounts
// show them: memory.max, or memory.limit_in_bytes of version 1. Unreadable limits do not count. Neither
// does memory.high, above which the kernel slows a cgroup down, but kills nothing.
func SmallestMemoryLimit(memberships []Membership, mounts []*Mount) (smallest MemoryLimit) {
	for _, m := range memberships {
		fsType, file := "cgroup2", "memory.max"
		if m.Hierarchy != 0 {
			if !slices.Contains(strings.Split(m.Controllers, ","), "memory") {
				continue
			}
			fsType, file = "cgroup", "memory.limit_in_bytes"
		}
		for _, mount := range mounts {
			if mount.FSType != fsType || fsType == "cgroup" && !slices.Contains(strings.Split(mount.VFSOptions, ","), "memory") {
				continue
			}
			// In a container, the mount can begin at any ancestor. If it does not contain the path, the
			// path is as another cgroup namespace sees it; the limits of the mount's root apply.
			below, err := filepath.Rel(mount.Root, m.Path)
			if err != nil || below == ".." || strings.HasPrefix(below, "../") {
				below = "."
			}
			for dir := filepath.Clean("/" + below); ; dir = filepath.Dir(dir) {
				path := filepath.Join(mount.Mountpoint, dir, file)
				if n := readMemoryLimit(path); n > 0 && (smallest.Bytes == 0 || n < smallest.Bytes) {
					smallest = MemoryLimit{n, path}
				}
				if dir == "/" {
					break
				}
			}
			break // other mounts show the same
		}
	}
	return smallest
}

// readMemoryLimit returns the limit in a file, 0 for none.
func readMemoryLimit(path string) uint64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64) // or "max"
	if err != nil || n >= noMemoryLimit {
		return 0
	}
	return n
}

// noMemoryLimit is less than the limit that version 1 shows for none: the number of pages is limited to
// LONG_MAX / PAGE_SIZE.
const noMemoryLimit = 1 << 62
