// Package safeopen opens files at paths that strangers chose: a binary names
// its debug files, a container has what it likes at any path. Opening the wrong
// thing is an act: the file of a watchdog starts it, a tape rewinds, a pipe
// waits for a writer. So what is at a path is found without opening it (O_PATH),
// then looked at, and the very same thing is opened only if it is what it should
// be. And what does not answer, as a mount whose server is gone, is not waited for.
package safeopen

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// open is [Open] for those who may wait.
func open(root, name string, accept func(*unix.Stat_t) error) (*File, error) {
	dir, err := Path(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(dir) }() // was only looked at
	fd, err := At(dir, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // likewise
	return Hold(fd, filepath.Join(root, name), accept)
}

// Path opens what is at a trusted path, only to look at it. The caller closes
// the descriptor. The error is an [os.PathError].
func Path(path string) (fd int, err error) {
	fd, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// At opens what is at name below the directory that dir is a descriptor of, only
// to look at it. Neither links nor the magic ones of /proc lead out of that. The
// caller closes the descriptor. The error is an [os.PathError].
func At(dir int, name string) (fd int, err error) {
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	below := strings.TrimLeft(name, "/")
	if below == "" {
		below = "."
	}
	for {
		fd, err = unix.Openat2(dir, below, how)
		// EAGAIN: something was renamed meanwhile.
		if err != unix.EAGAIN && err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// reopen opens for reading what fd, a descriptor of [Path] or [At], stands for; name
// is what the file is called in errors. It leaves fd open.
func reopen(fd int, name string) (*os.File, error) {
	// O_NONBLOCK: nor does a lease that somebody has on the file make us wait.
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	for {
		opened, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), flags, 0)
		switch err {
		case nil:
			// Of what does not block, Go's runtime would ask whether it is ready: FUSE
			// asks its daemon, and all of the process would wait for the answer.
			if err := unix.SetNonblock(opened, false); err != nil {
				return nil, errors.Join(&os.PathError{Op: "open", Path: name, Err: err}, unix.Close(opened))
			}
			return os.NewFile(uintptr(opened), name), nil
		case unix.EINTR:
		default:
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

var errNotRegular = errors.New("not a regular file")

// Regular accepts regular files.
func Regular(st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errNotRegular
	}
	return nil
}

// Directory accepts directories.
func Directory(st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR
	}
	return nil
}
