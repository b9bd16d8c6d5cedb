package containers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
)

// Cgroups maps IDs of control groups to paths.
type Cgroups struct {
	mount string // mount point of the hierarchy, "" if not mounted
	names map[uint64]string
}

// NewCgroups returns the names of the version 2 hierarchy that is mounted in m. In a
// container with its own cgroup namespace, "/" is the container's group. If the host's
// hierarchy is mounted too, its root is above that: "/../..".
func NewCgroups(m []*procfs.Mount) *Cgroups {
	c := &Cgroups{names: map[uint64]string{}}
	highest := -1
	for _, at := range m {
		above, ok := ancestors(at.Root)
		if at.FSType == "cgroup2" && ok && above > highest {
			c.mount, highest = at.Mountpoint, above
		}
	}
	return c
}

// ancestors returns how many levels the root of a mount is above the root of the namespace,
// and false if it is below.
func ancestors(root string) (n int, ok bool) {
	if root == "/" {
		return 0, true
	}
	n = strings.Count(root, "/..")
	return n, n > 0 && root == strings.Repeat("/..", n)
}

// Name returns the path of a group in its hierarchy, "/" for the root. It returns ""
// if the group is gone or its path is unknown.
func (c *Cgroups) Name(id uint64) string {
	if name, ok := c.names[id]; ok || c.mount == "" {
		return name
	}
	// Another file system may be mounted there by now.
	path, err := safeopen.Ask(nil, safeopen.Backend{Path: c.mount}, func(*safeopen.Request) (string, error) { return pathByHandle(c.mount, id) })
	if err == nil {
		path = "/" + strings.TrimPrefix(strings.TrimPrefix(path, c.mount), "/")
	}
	if len(c.names) >= maxNames {
		clear(c.names)
	}
	c.names[id] = path
	return path
}

// maxNames limits the cached paths.
const maxNames = 1 << 14

// kernfsHandle is the type of file handles that contain the ID of a group:
// FILEID_KERNFS in the kernel.
const kernfsHandle = 0xfe

// pathByHandle returns the path of the directory with an ID in a cgroup file system;
// see open_by_handle_at(2).
func pathByHandle(mount string, id uint64) (path string, err error) {
	root, err := unix.Open(mount, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", mount, err)
	}
	defer func() { err = errors.Join(err, unix.Close(root)) }()
	handle := unix.NewFileHandle(kernfsHandle, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := capability.With(capability.SetOf(capability.DACReadSearch), func() (int, error) {
		return unix.OpenByHandleAt(root, handle, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	})
	if err != nil {
		return "", fmt.Errorf("open the control group %d: %w", id, err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
}
