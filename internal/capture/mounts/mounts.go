// Package mounts names the files and control groups that the kernel side tells of
// by numbers, by where this process sees them.
package mounts

import (
	"fmt"
	"path"
	"strings"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/procfs"
)

// List are where file systems are mounted, as this process sees it.
type List []*procfs.Mount

// Name returns what a file that the kernel side met is called, "file" if that was
// lost.
func (m List) Name(store *stacks.Store, id uint64) string {
	f, ok := store.Files[id]
	if !ok {
		return "file"
	}
	return m.Path(f)
}

// Path returns the path of a file as this process would open it; where the file
// system is mounted nowhere, its path in there. A file without one is told by its
// number.
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
