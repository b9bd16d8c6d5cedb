package procfs

import (
	"bytes"
	"fmt"
	"os"

	"github.com/moby/sys/mountinfo"
)

// Mount is a mount point.
type Mount = mountinfo.Info

// Mounts returns the mount points of this process's mount namespace.
func Mounts() ([]*Mount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mount points: %w", err)
	}
	return ParseMounts(b), nil
}

// ParseMounts parses a /proc/PID/mountinfo file, see proc_pid_mountinfo(5). It leaves out
// malformed lines, and lines of more than 64 KiB: one must not hide the others.
func ParseMounts(b []byte) []*Mount {
	var mounts []*Mount
	for line := range bytes.Lines(b) {
		// The error is about this line alone.
		if m, err := mountinfo.GetMountsFromReader(bytes.NewReader(line), nil); err == nil {
			mounts = append(mounts, m...)
		}
	}
	return mounts
}
