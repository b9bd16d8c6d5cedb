// Package mounts maps the numbers of files and control groups from the kernel side
// to paths, as seen by this process.
package mounts

import (
	"fmt"
	"path"
	"strings"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/procfs"
)

// List holds the mounted file systems, as seen by this process.
type List []*procfs.Mount

// Name returns the name of a file from the kernel side, "file" if its record was
// lost.
func (m List) Name(store *stacks.Store, id uint64) string {
	f, ok := store.Files[id]
	if !ok {
		return "file"
	}
	return m.Path(f)
}

// Path returns the path at which this process would open a file. If the file system
// is not mounted, it is the path within the file system. A file without a path is
// identified by its inode number.
func (m List) Path(f stacks.File) string {
	device := stacks.Device{Major: f.Major, Minor: f.Minor}
	switch {
	case f.Device:
		return "/dev/" + device.String()
	case f.Path == "":
		return fmt.Sprintf("inode %d of %s", f.Inode, device)
	}
	for _, at := range m {
		if at.Major != int(f.Major) || at.Minor != int(f.Minor) {
			continue
		}
		if below, ok := strings.CutPrefix(f.Path, strings.TrimSuffix(at.Root, "/")); ok && strings.HasPrefix(below, "/") {
			return path.Join(at.Mountpoint, below)
		}
	}
	return f.Path
}
