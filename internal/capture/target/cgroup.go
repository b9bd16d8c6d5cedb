package target

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// OpenedCgroup is the directory of a cgroup that is a target.
type OpenedCgroup struct {
	// FD is its descriptor, -1 if the target is not a cgroup.
	FD int
	// ID is its inode number, which identifies it on the kernel side.
	ID uint64
}

// OpenCgroup opens t's cgroup, if t is one.
func OpenCgroup(t Target) (OpenedCgroup, error) {
	none := OpenedCgroup{FD: -1}
	if t.Scope != Cgroup {
		return none, nil
	}
	fd, err := unix.Open(t.CgroupPath, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return none, fmt.Errorf("open cgroup %s: %w", t.CgroupPath, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return none, errors.Join(fmt.Errorf("examine cgroup %s: %w", t.CgroupPath, err), unix.Close(fd))
	}
	return OpenedCgroup{FD: fd, ID: st.Ino}, nil
}

// Close closes the cgroup, if there is one. Further calls do nothing.
func (c *OpenedCgroup) Close() {
	if c.FD >= 0 {
		_ = unix.Close(c.FD) // read-only
		c.FD = -1
	}
}
