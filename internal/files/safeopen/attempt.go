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
	_, _, err := nearest(name)
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
		case <-time.After(askAgain): // until it responds, each request fails at once
		case <-ctx.Done():
			return err
		}
	}
}

// Attempt runs attempt, which does something in the directory dir, and returns its result. If
// dir is on a local disk, attempt has no time limit. Otherwise it is limited as by [Ask]. If the
// file system of dir does not respond already, attempt does not run.
func Attempt[T any](dir string, attempt func() (T, error)) (got T, err error) {
	at, on, err := nearest(dir)
	if err != nil {
		return got, err
	}
	if on == direct {
		return attempt()
	}
	got, err = Ask(nil, at, func(*Request) (T, error) { return attempt() })
	return got, unanswered("open", dir, err)
}

// nearest returns the file system at name, or at the nearest directory above that exists. It
// returns an error only if that does not respond: all others are left to the operation that follows.
func nearest(name string) (Backend, access, error) {
	for at := absolute(name); ; at = path.Dir(at) {
		f, err := Open("/", at, Directory) // unlike fstat(2), this is not answered from the kernel's cache
		switch {
		case err == nil:
			return Backend{Device: f.info.st.Dev}, f.on, f.Close()
		case errors.Is(err, ErrNoAnswer):
			return Backend{}, timed, &os.PathError{Op: "open", Path: name, Err: ErrNoAnswer}
		case at == "/" || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR):
			return backendOf("/", at+"/x"), timed, nil
		}
	}
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
