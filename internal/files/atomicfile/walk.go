package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is the kernel's limit of links in a path.
const maxLinks = 40

// enter opens the directory at path as an O_PATH descriptor, unless another user may have put
// a link on the way to it. The way cannot change between the check and the use of the result.
func enter(path string) (*os.File, error) {
	at, err := openDirectory(unix.AT_FDCWD, begin(path), 0)
	if err != nil {
		return nil, err
	}
	links := 0
	for parts := strings.Split(path, "/"); len(parts) > 0; {
		next, link, err := step(at, parts[0])
		parts = parts[1:]
		if link != "" {
			if links++; links > maxLinks {
				_ = unix.Close(at) // O_PATH
				return nil, unix.ELOOP
			}
			parts = append(strings.Split(link, "/"), parts...)
			next, err = openDirectory(at, begin(link), 0)
		}
		_ = unix.Close(at) // likewise
		if err != nil {
			return nil, err
		}
		at = next
	}
	return os.NewFile(uintptr(at), path), nil
}

// begin returns the directory in which a path begins.
func begin(path string) string {
	if strings.HasPrefix(path, "/") {
		return "/"
	}
	return "."
}

// step opens the directory called name in the directory dir, or returns the target if it is a
// link.
func step(dir int, name string) (fd int, link string, err error) {
	if name == "" {
		name = "."
	}
	fd, err = openDirectory(dir, name, unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOTDIR) {
		return follow(dir, name)
	}
	return fd, "", err
}

// openDirectory opens a directory as an O_PATH descriptor, with additional flags. O_DIRECTORY
// makes the kernel mount what autofs mounts there.
func openDirectory(dir int, name string, flags int) (int, error) {
	return openPath(dir, name, unix.O_DIRECTORY|flags)
}

// openPath opens a file as an O_PATH descriptor, with additional flags.
func openPath(dir int, name string, flags int) (fd int, err error) {
	err = again(func() error {
		fd, err = unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
		return err
	})
	return fd, err
}

// again calls call until no signal interrupts it, as package os does: on FUSE, signals of Go's
// runtime interrupt system calls.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// follow follows the link called name in the directory dir: it returns the link's target, or
// the directory to which the kernel itself leads.
func follow(dir int, name string) (fd int, target string, err error) {
	link, err := openPath(dir, name, unix.O_NOFOLLOW)
	if err != nil {
		return -1, "", err
	}
	defer func() { _ = unix.Close(link) }() // O_PATH
	var is, in unix.Stat_t
	var on unix.Statfs_t
	for _, call := range []func() error{
		func() error { return unix.Fstat(link, &is) },
		func() error { return unix.Fstat(dir, &in) },
		func() error { return unix.Fstatfs(link, &on) },
	} {
		if err := again(call); err != nil {
			return -1, "", err
		}
	}
	switch {
	case is.Mode&unix.S_IFMT != unix.S_IFLNK:
		return -1, "", unix.ENOTDIR
	case on.Type == unix.PROC_SUPER_MAGIC: // its text may not be a path
		fd, err = openDirectory(dir, name, 0)
		return fd, "", err
	case folder{in}.misleads(&is):
		return -1, "", errStrangersWay
	}
	target, err = textOf(link)
	return -1, target, err
}

// below returns a path of the file called name in the directory dir.
func below(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}
