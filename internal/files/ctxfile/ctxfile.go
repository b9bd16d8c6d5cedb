// Package ctxfile reads and writes files until a context is done, so that Ctrl-C interrupts
// reading gigabytes or waiting for the other end of a pipe.
package ctxfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/tempfile"
)

// pollMillis is the time that a read may block before it checks the context again.
const pollMillis = 100

// File is a file whose reads fail with the context's error once the context is done.
type File struct {
	ctx   context.Context
	f     *os.File
	name  string
	waits bool // reads may block: a pipe, a terminal
}

// Open opens the file at path; "-" is standard input.
func Open(ctx context.Context, path string) (*File, error) {
	if path == "-" {
		return newFile(ctx, os.Stdin, "standard input")
	}
	f, err := open(ctx, path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return newFile(ctx, f, path)
}

// open opens the file at path. Opening a named pipe blocks until its other end is open, too, or
// ctx is done.
func open(ctx context.Context, path string, flag int) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened)
	go func() {
		f, err := os.OpenFile(path, flag, 0)
		select {
		case done <- opened{f, err}:
		case <-ctx.Done():
			if err == nil {
				_ = f.Close() // ctx is done: nobody wants it
			}
		}
	}()
	select {
	case o := <-done:
		return o.f, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("open %s: %w", path, context.Cause(ctx))
	}
}

// Regular returns f if it is a regular file and so can be read again and at any offset.
// Otherwise it returns a temporary copy and closes f. On error, f stays open.
func Regular(ctx context.Context, f *File) (*File, error) {
	info, err := f.Stat()
	if err != nil || info.Mode().IsRegular() {
		return f, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s: is a directory", f.name)
	}
	tmp, err := Temporary(ctx, f, f.name)
	if err == nil {
		_ = f.Close() // read-only
	}
	return tmp, err
}

// Temporary returns a temporary file with a copy of the data of r, at its beginning. name is used in
// errors.
func Temporary(ctx context.Context, r io.Reader, name string) (*File, error) {
	file, err := tempfile.Create()
	if err != nil {
		return nil, err
	}
	tmp, err := newFile(ctx, file, name)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(tmp, r); err != nil {
		return nil, errors.Join(fmt.Errorf("copying %s to a temporary file: %w (set TMPDIR to use another directory)", name, err), tmp.Close())
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(err, tmp.Close())
	}
	return tmp, nil
}

func newFile(ctx context.Context, f *os.File, name string) (*File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{ctx: ctx, f: f, name: name, waits: !info.Mode().IsRegular() && !info.IsDir()}, nil
}

// Name returns the path given to Open, or its replacement in errors.
func (f *File) Name() string { return f.name }

// Stat describes the file.
func (f *File) Stat() (fs.FileInfo, error) { return f.f.Stat() }

// Read implements io.Reader.
func (f *File) Read(b []byte) (int, error) {
	if err := f.wait(); err != nil {
		return 0, err
	}
	return f.f.Read(b)
}

// wait returns when a read would not block, or when the context is done.
func (f *File) wait() error {
	for {
		if err := f.ctx.Err(); err != nil || !f.waits {
			return err
		}
		ready, err := poll(f.f)
		if err != nil {
			return os.NewSyscallError("poll "+f.name, err)
		}
		if ready {
			return nil
		}
	}
}

// poll waits until f can be read, but not longer than pollMillis.
func poll(f *os.File) (ready bool, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var n int
	var failed error
	// Fd would make f block, and with it all that share its open file.
	err = conn.Control(func(fd uintptr) {
		n, failed = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, pollMillis)
	})
	if failed != nil && !errors.Is(failed, unix.EINTR) {
		return false, failed
	}
	return n > 0, err
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.f.ReadAt(b, off)
}

// Seek implements io.Seeker.
func (f *File) Seek(offset int64, whence int) (int64, error) { return f.f.Seek(offset, whence) }

// Write implements io.Writer.
func (f *File) Write(b []byte) (int, error) { return f.f.Write(b) }

// Close closes the file. Further calls do nothing.
func (f *File) Close() error {
	if err := f.f.Close(); !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}
