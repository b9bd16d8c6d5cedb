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

	"fulgur/internal/answer"
)

// open is [Open] for those who may wait.
func open(v *answer.Visit, root, name string, accept func(*unix.Stat_t) error) (*File, error) {
	fd, err := Below(v, root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // was only looked at
	return Hold(v, fd, filepath.Join(root, name), accept)
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

// Below is [At] for a directory at a trusted path.
func Below(v *answer.Visit, root, name string) (fd int, err error) {
	dir, err := Path(root)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(dir) }() // was only looked at
	return At(v, dir, name)
}

// mostReached is how many directories of a path are looked at on the way. What is
// mounted further down is rare, and paths may be as long as strangers like.
const mostReached = 16

// At opens what is at name below the directory that dir is a descriptor of, only
// to look at it. Neither links nor the magic ones of /proc lead out of that. The
// caller closes the descriptor. It tells v whose the directories on the way are. The
// error is an [os.PathError], or of [answer.Visit.Reach].
func At(v *answer.Visit, dir int, name string) (fd int, err error) {
	if _, err := reach(v, dir); err != nil {
		return -1, err
	}
	below := strings.TrimLeft(name, "/")
	if below == "" {
		below = "."
	}
	reached := 0
	for i := range len(below) {
		if below[i] != '/' || reached == mostReached {
			continue
		}
		reached++
		fd, err := at(dir, below[:i])
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: name, Err: err}
		}
		_, err = reach(v, fd)
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			return -1, err
		}
	}
	if fd, err = at(dir, below); err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// at is [At] in one step.
func at(dir int, below string) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(dir, below, how)
		// EAGAIN: something was renamed meanwhile.
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
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
