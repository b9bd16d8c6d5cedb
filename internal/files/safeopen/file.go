package safeopen

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/answer"
	"fulgur/internal/linux/capability"
)

// File is a file or directory that was found to be what it should be. Its methods
// wait for its file system for a moment only; where that does not answer, their
// errors wrap [answer.ErrNone].
//
// Of a file system that may stop answering, nothing stays open for reading: whoever
// closes that, and be it the kernel when it ends a process, has FUSE ask its daemon,
// and waits for ever. What was only looked at (O_PATH) is closed without a question,
// so that is kept, and is opened for each reading.
type File struct {
	file   *os.File // open for reading if on is onDisk, else only looked at
	name   string
	info   info
	on     standing // of its file system
	off    int64    // of the next Read
	rights capability.Set
	// patience is what its readers wait with, nil for as long as [answer.Ask] does.
	patience *answer.Patience
}

// With returns f for a reader that waits no longer than p allows. Closing either closes
// both.
func (f *File) With(p *answer.Patience) *File {
	other := *f
	other.patience = p
	return &other
}

// placeDepth is how many directories of a path tell mounts apart: those of a mount
// that does not answer are best asked once, and what lies beside it is not to
// suffer.
const placeDepth = 3

// placeOf returns the surroundings of name below root.
func placeOf(root, name string) answer.Place {
	parts := strings.SplitN(strings.TrimPrefix(path.Dir(path.Clean("/"+name)), "/"), "/", placeDepth+1)
	return answer.Place{Near: path.Join(root, path.Join(parts[:min(len(parts), placeDepth)]...))}
}

// Open opens what is at name below the directory root, for reading, if accept
// returns nil for it. Symbolic links lead to places below root, whatever they
// say: those of a container mean its own files.
func Open(root, name string, accept func(*unix.Stat_t) error) (*File, error) {
	f, err := answer.Ask(placeOf(root, name), func(v *answer.Visit) (*File, error) { return open(v, root, name, accept) },
		func(f *File, err error) {
			if err == nil {
				_ = f.Close() // nobody waited for it
			}
		})
	if errors.Is(err, answer.ErrNone) {
		err = &os.PathError{Op: "open", Path: path.Join(root, name), Err: err}
	}
	return f, err
}

// OpenTrusted is [Open] for a path that strangers did not choose, though links on it
// may lead anywhere, as /proc/PID/exe does. It is opened with the given capabilities.
func OpenTrusted(name string, rights capability.Set, accept func(*unix.Stat_t) error) (*File, error) {
	f, err := answer.Ask(answer.Place{Near: name}, func(v *answer.Visit) (*File, error) {
		fd, err := Path(name, rights)
		if err != nil {
			return nil, err
		}
		defer func() { _ = unix.Close(fd) }() // was only looked at
		return Hold(v, fd, name, rights, accept)
	}, func(f *File, err error) {
		if err == nil {
			_ = f.Close() // nobody waited for it
		}
	})
	if errors.Is(err, answer.ErrNone) {
		err = &os.PathError{Op: "open", Path: name, Err: err}
	}
	return f, err
}

// Stat returns what [os.Stat] does of what is at a trusted path.
func Stat(name string) (os.FileInfo, error) { return StatTrusted(name, AsUser) }

// StatRoot is [Stat] of a root to open files below: one of a process may be another
// user's.
func StatRoot(root string) (os.FileInfo, error) { return StatTrusted(root, toReach(root)) }

// StatTrusted is [Stat] with the given capabilities.
func StatTrusted(name string, rights capability.Set) (os.FileInfo, error) {
	found, err := answer.Ask(answer.Place{Near: name}, func(v *answer.Visit) (os.FileInfo, error) {
		fd, err := Path(name, rights)
		if err != nil {
			return nil, err
		}
		defer func() { _ = unix.Close(fd) }() // was only looked at
		st, err := Look(v, fd)
		return newInfo(name, st), err
	}, func(os.FileInfo, error) {}) // nothing is left of it
	if errors.Is(err, answer.ErrNone) {
		err = &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Hold returns what fd, a descriptor of [Path] or [At], stands for, if it can be
// read with the given capabilities and accept returns nil for it; name is what it is
// called. It leaves fd open. Unlike what it returns, it waits for the file system,
// having told v which it is.
func Hold(v *answer.Visit, fd int, name string, rights capability.Set, accept func(*unix.Stat_t) error) (*File, error) {
	on, err := reach(v, fd)
	if err != nil {
		return nil, err
	}
	st, err := look(fd, on)
	if err != nil {
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if err := accept(&st); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &File{name: name, info: newInfo(name, st), on: on, rights: rights}
	if on == remote {
		if _, _, err = remotely(request{Op: opRead}, fd, name); err != nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
	} else if f.file, err = reopen(fd, name, rights); err != nil {
		return nil, err
	}
	if on == onDisk {
		return f, nil
	}
	// It can be read, which is all that was to be known.
	looked, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if f.file != nil {
		err = errors.Join(err, f.file.Close())
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f.file = os.NewFile(uintptr(looked), name)
	return f, nil
}

// info is what fstat(2) told of a file, as an [os.FileInfo]: os.File.Stat would ask the
// file system.
type info struct {
	name string
	st   syscall.Stat_t
}

func newInfo(name string, st unix.Stat_t) info {
	return info{path.Base(name), *(*syscall.Stat_t)(unsafe.Pointer(&st))}
}

// Same is [os.SameFile] for what this package tells of files.
func Same(a, b os.FileInfo) bool {
	x, okX := a.Sys().(*syscall.Stat_t)
	y, okY := b.Sys().(*syscall.Stat_t)
	return okX && okY && x.Dev == y.Dev && x.Ino == y.Ino
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.st.Size }
func (i info) ModTime() time.Time { return time.Unix(i.st.Mtim.Unix()) }
func (i info) IsDir() bool        { return i.Mode().IsDir() }
func (i info) Sys() any           { return &i.st }

func (i info) Mode() os.FileMode {
	mode := os.FileMode(i.st.Mode & 0o777)
	switch i.st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		mode |= os.ModeDir
	default:
		mode |= os.ModeIrregular // none that was accepted
	}
	return mode
}

// Name returns the path that the file was opened at, its root included.
func (f *File) Name() string { return f.name }

// Stat returns what the file was when it was opened.
func (f *File) Stat() (os.FileInfo, error) { return f.info, nil }

// Now returns what fstat(2) tells of the file now.
func (f *File) Now() (unix.Stat_t, error) {
	return ask(f, "stat", func() (st unix.Stat_t, err error) {
		err = f.control(func(fd int) (err error) {
			st, err = look(fd, f.on)
			return err
		})
		return st, err
	})
}

// OS returns a descriptor of the file for programs that are to open it, at its path
// in /proc/self/fd. It is closed with f.
func (f *File) OS() *os.File { return f.file }

// maxAsked is the number of bytes that a question asks for at most: many of them
// may take as long as they do, as long as there are some all the time.
const maxAsked = 1 << 20

// ReadAt implements [io.ReaderAt].
func (f *File) ReadAt(b []byte, off int64) (n int, err error) {
	if f.on == onDisk {
		return f.file.ReadAt(b, off)
	}
	for n < len(b) && err == nil {
		at, size := off+int64(n), min(len(b)-n, maxAsked)
		var part []byte
		if f.on == remote {
			part, err = f.remotely(request{Op: opRead, Off: at, Most: uint32(size)})
			if err == nil && len(part) < size {
				err = io.EOF
			}
		} else {
			part, err = reading(f, func(file *os.File) ([]byte, error) {
				own := make([]byte, size) // a reading that was given up may still write to it
				n, err := file.ReadAt(own, at)
				return own[:n], err
			})
		}
		n += copy(b[n:], part)
	}
	return n, err
}

// Read implements [io.Reader].
func (f *File) Read(b []byte) (int, error) {
	n, err := f.ReadAt(b, f.off)
	f.off += int64(n)
	return n, err
}

// Names returns the names of what is in a directory, most of them at most.
func (f *File) Names(most int) ([]string, error) {
	if f.on == remote {
		body, err := f.remotely(request{Op: opNames, Most: uint32(max(min(most, math.MaxInt32), 0))})
		return names(body), err
	}
	names, err := reading(f, func(file *os.File) ([]string, error) {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		return file.Readdirnames(most)
	})
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// Close closes the file. It asks nobody.
func (f *File) Close() error { return f.file.Close() }

// ask asks the file's file system for what op says.
func ask[T any](f *File, op string, question func() (T, error)) (T, error) {
	if f.on == onDisk {
		return question()
	}
	on := answer.Place{Device: f.info.st.Dev}
	got, err := answer.AskPatiently(f.patience, on, func(*answer.Visit) (T, error) { return question() }, func(T, error) {}) // what is late is of no use
	if errors.Is(err, answer.ErrNone) {
		err = &os.PathError{Op: op, Path: f.name, Err: err}
	}
	return got, err
}

// reading asks the file's file system for what read returns of the file, open for
// reading.
func reading[T any](f *File, read func(*os.File) (T, error)) (T, error) {
	return ask(f, "read", func() (got T, err error) {
		if f.on == onDisk {
			return read(f.file)
		}
		var file *os.File
		if err := f.control(func(fd int) (err error) {
			file, err = reopen(fd, f.name, f.rights)
			return err
		}); err != nil {
			return got, err
		}
		defer func() { _ = file.Close() }() // was only read
		return read(file)
	})
}

// remotely asks the file's file system through a helper.
func (f *File) remotely(r request) ([]byte, error) {
	return ask(f, "read", func() (body []byte, err error) {
		err = f.control(func(fd int) error {
			body, _, err = remotely(r, fd, f.name)
			if errno := unix.Errno(0); errors.As(err, &errno) {
				return &os.PathError{Op: "read", Path: f.name, Err: errno}
			}
			return err
		})
		return body, err
	})
}

// control calls fn with the file's descriptor, which stays open meanwhile though
// others may close the file.
func (f *File) control(fn func(fd int) error) error {
	conn, err := f.file.SyscallConn()
	if err != nil {
		return err
	}
	if conn.Control(func(fd uintptr) { err = fn(int(fd)) }) != nil {
		return os.ErrClosed // what else it fails for
	}
	return err
}
