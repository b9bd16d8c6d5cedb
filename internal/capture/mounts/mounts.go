// Package mounts names the files and control groups that the kernel side tells of
// by numbers, by where this process sees them.
package mounts

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/capture/blockio"
	"fulgur/internal/capture/stacks"
)

// List are where file systems are mounted, as this process sees it.
type List []mount

type mount struct {
	major, minor uint32
	root, point  string // a directory of the file system, and where it is seen
	kind         string // of file system, as "ext4"; empty if that is not told
}

// Read reads them of /proc/self/mountinfo.
func Read() (List, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read where file systems are mounted: %w", err)
	}
	return parseMounts(b), nil
}

// parseMounts reads /proc/PID/mountinfo, see proc_pid_mountinfo(5), and leaves out
// lines that are not of its form.
func parseMounts(b []byte) List {
	var list List
	for line := range bytes.Lines(b) {
		// Paths may hold what Unicode calls a space; the kernel escapes ASCII's.
		fields := strings.Split(strings.TrimSuffix(string(line), "\n"), " ")
		if len(fields) < 5 {
			continue
		}
		major, minor, ok := strings.Cut(fields[2], ":")
		n, errMajor := strconv.ParseUint(major, 10, 32)
		m, errMinor := strconv.ParseUint(minor, 10, 32)
		if !ok || errMajor != nil || errMinor != nil {
			continue
		}
		at := mount{major: uint32(n), minor: uint32(m), root: unescape(fields[3]), point: unescape(fields[4])}
		if i := slices.Index(fields, "-"); i > 0 && i+1 < len(fields) {
			at.kind = fields[i+1]
		}
		list = append(list, at)
	}
	return list
}

// unescape replaces octal escapes, as \040 for a space.
func unescape(s string) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(s, `\`)
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		s = after
		if len(s) >= 3 {
			if n, err := strconv.ParseUint(s[:3], 8, 8); err == nil {
				b.WriteByte(byte(n))
				s = s[3:]
				continue
			}
		}
		b.WriteByte('\\')
	}
}

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
	device := blockio.Device{Major: f.Major, Minor: f.Minor}
	switch {
	case f.Device:
		return "/dev/" + device.String()
	case f.Path == "":
		return fmt.Sprintf("inode %d of %s", f.Inode, device)
	}
	for _, at := range m {
		if at.major != f.Major || at.minor != f.Minor {
			continue
		}
		if below, ok := strings.CutPrefix(f.Path, strings.TrimSuffix(at.root, "/")); ok && strings.HasPrefix(below, "/") {
			return path.Join(at.point, below)
		}
	}
	return f.Path
}
