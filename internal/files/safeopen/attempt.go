package safeopen

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Answer returns [ErrNoAnswer] if the file system at name does not respond, and otherwise nil,
// whatever is there. If name does not exist, it asks at the nearest directory above. Call it
// before an operation without a time limit, such as writing, at a path that the user chose.
func Answer(name string) error {
	_, err := standingOf(name)
	return err
}

// Await waits until the file system at name responds. It returns an error only if ctx is done
// first. It calls slow if the file system does not respond at once.
func Await(ctx context.Context, name string, slow func()) error {
	for first := true; ; first = false {
		asked := make(chan error, 1)
		go func() { asked <- Answer(name) }()
		var err error
		select {
		case err = <-asked:
		case <-ctx.Done():
			return &os.PathError{Op: "open", Path: name, Err: ErrNoAnswer}
		}
		if err == nil {
			return nil
		}
		if first {
			slow()
		}
		select {
		case <-time.After(askAgain): // until it responds, each question fails at once
		case <-ctx.Done():
			return err
		}
	}
}

// Attempt runs attempt, which does something in the directory dir, and returns its result. If
// dir is on a local disk, attempt has no time limit. Otherwise it has the same one as with
// [Ask], and a later result goes to late. If the file system of dir does not respond already,
// attempt does not run.
func Attempt[T any](dir string, attempt func() (T, error), late func(T, error)) (got T, err error) {
	at, err := standingOf(dir)
	if err != nil {
		return got, err
	}
	if at.on == onDisk {
		return attempt()
	}
	got, err = Ask(at.place, func(*Visit) (T, error) { return attempt() }, late)
	if errors.Is(err, ErrNoAnswer) {
		err = &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return got, err
}

// located is a file system that responds.
type located struct {
	place Place
	on    standing
}

// standingOf asks the file system at name, or at the nearest directory above that exists. The
// error wraps [ErrNoAnswer]. All other errors are left to the operation that follows.
func standingOf(name string) (located, error) {
	absolute := absolute(name)
	// The last element counts too: a file system may be mounted there.
	place := placeOf("/", path.Join(absolute, "x"))
	at, err := Ask(place, func(v *Visit) (located, error) {
		fd, found, err := nearest(v, absolute)
		if err != nil {
			return located{place, elsewhere}, err
		}
		defer func() { _ = unix.Close(fd) }() // O_PATH
		return locate(v, fd, found)
	}, func(located, error) {}) // it holds no resources
	if errors.Is(err, ErrNoAnswer) {
		return at, &os.PathError{Op: "open", Path: name, Err: ErrNoAnswer}
	}
	return at, nil
}

// nearest opens name, an absolute path, or the nearest directory above that exists, as an O_PATH
// descriptor.
func nearest(v *Visit, name string) (fd int, found string, err error) {
	for {
		fd, err := Below(v, "/", name)
		missing := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
		if !missing || name == "/" {
			return fd, name, err
		}
		name = path.Dir(name)
	}
}

// locate asks the file system of fd, an O_PATH descriptor of the file called name.
func locate(v *Visit, fd int, name string) (located, error) {
	at := located{place: v.who, on: elsewhere}
	on, err := reach(v, fd)
	if err != nil {
		return at, err
	}
	st, err := look(fd, on)
	if err != nil {
		return at, err
	}
	at = located{Place{Device: st.Dev}, on}
	// Unlike fstat(2), opening a directory is not answered from the kernel's cache.
	dir, err := hold(fd, name, on, AsUser, Directory)
	if err == nil {
		_ = dir.Close() // nothing was written
	}
	return at, err
}

// absolute returns the absolute path of name. Unlike [filepath.Abs], it does not access the
// file system.
func absolute(name string) string {
	if filepath.IsAbs(name) {
		return path.Clean(name)
	}
	dir, err := unix.Getwd()
	if err != nil {
		return "/" // the operation that follows fails
	}
	return path.Join(dir, name)
}
