// Package tracefs reads the kernel's tracing file system: the tracepoints, the formats of
// their records, and the functions that can be traced. It changes nothing there.
package tracefs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxFile bounds the size of a file, in bytes. The list of functions has a few
// megabytes.
const maxFile = 64 << 20

// FS is a tracing file system.
type FS struct{ dir *os.File }

// Open returns the kernel's tracing file system. It need not be mounted: Open uses a
// mount that only this process sees. If the kernel refuses that, it uses the mount at the
// usual place.
func Open() (*FS, error) {
	dir, err := private()
	if err != nil {
		for _, place := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
			if mounted, openErr := os.Open(place + "/events"); openErr == nil {
				_ = mounted.Close() // nothing was written
				if dir, openErr = os.Open(place); openErr == nil {
					return &FS{dir}, nil
				}
			}
		}
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w; run fulgur with sudo", err)
		}
		return nil, fmt.Errorf("open tracefs: %w", err)
	}
	return &FS{dir}, nil
}

// private mounts the file system without a mount point.
func private() (*os.File, error) {
	context, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer func() { _ = unix.Close(context) }()
	if err := unix.FsconfigCreate(context); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	dir, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	return os.NewFile(uintptr(dir), "tracefs"), nil
}

// Close releases the file system.
func (t *FS) Close() error { return t.dir.Close() }

// open opens a file below the root.
func (t *FS) open(name string) (*os.File, error) {
	fd, err := unix.Openat2(int(t.dir.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path.Join("tracefs", name), Err: err}
	}
	return os.NewFile(uintptr(fd), path.Join("tracefs", name)), nil
}

func (t *FS) read(name string) (string, error) {
	f, err := t.open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return string(b), nil
}

// Tracepoints returns the tracepoints as "group:name", sorted.
func (t *FS) Tracepoints() ([]string, error) {
	list, err := t.read("available_events")
	if err != nil {
		return nil, err
	}
	names := strings.Fields(list)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Tracepoint returns the ID of a tracepoint, which perf events use, and the fields of its
// record. The error wraps [fs.ErrNotExist] if there is no such tracepoint.
func (t *FS) Tracepoint(group, name string) (Format, error) {
	if strings.ContainsRune(group+name, '/') {
		return Format{}, fs.ErrNotExist
	}
	text, err := t.read(path.Join("events", group, name, "format"))
	if err != nil {
		return Format{}, err
	}
	return ParseFormat(text)
}

// Functions returns the names of the functions that can be traced. A name can occur
// several times.
func (t *FS) Functions() (names []string, err error) {
	f, err := t.open("available_filter_functions")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxFile))
	for lines.Scan() {
		name, _, _ := strings.Cut(lines.Text(), " ") // the name of its module may follow
		if name != "" && !strings.HasPrefix(name, "__ftrace_invalid_address__") {
			names = append(names, name)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return names, nil
}
