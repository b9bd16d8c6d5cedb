package safeopen

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/capability"
)

// File is a file or directory that passed its check. Its methods wait for its file system
// only briefly; if it does not respond, their errors wrap [ErrNoAnswer].
//
// A File on a file system that may stop responding is not kept open for reading. Closing
// such a descriptor makes FUSE ask its daemon, and even the kernel waits for that when it
// ends a process. So the File keeps an O_PATH descriptor, which closes without asking,
// and opens it for each read.
type File struct {
	file   *os.File // open for reading if on is onDisk, otherwise O_PATH
	name   string
	info   info
	on     standing // of its file system
	off    int64    // of the next Read
	rights capability.Set
	// budget bounds the waits of the readers; nil means the default of [Ask].
	budget *Budget
}

// With returns f for a reader that waits no longer than p allows. Closing either closes
// both.
func (f *File) With(p *Budget) *File {
	other := *f
	other.budget = p
	return &other
}

// Clone returns another descriptor of the same file, which is closed on its own. If f is closed,
// the error is [os.ErrClosed].
func (f *File) Clone() (*File, error) {
	other := *f
	err := f.control(func(fd int) error {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		other.file = os.NewFile(uintptr(own), f.name)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &other, nil
}

// placeDepth is the number of leading directories that identify a mount whose device is
// unknown. A mount that does not respond is then asked only once, and files beside it are
// not affected.
const placeDepth = 3

// placeOf returns the leading directories of name below root.
func placeOf(root, name string) Place {
	parts := strings.SplitN(strings.TrimPrefix(path.Dir(path.Clean("/"+name)), "/"), "/", placeDepth+1)
	return Place{Near: path.Join(root, path.Join(parts[:min(len(parts), placeDepth)]...))}
}

// Open opens name below the directory root for reading, if accept returns nil for it.
// Symbolic links resolve below root whatever they say: links in a container refer to the
// container's own files.
func Open(root, name string, accept func(*unix.Stat_t) error) (*File, error) {
	return OpenWithin(nil, root, name, accept)
}

// OpenWithin is like [Open] for a reader that waits no longer than p allows.
func OpenWithin(p *Budget, root, name string, accept func(*unix.Stat_t) error) (*File, error) {
	return openWithin(p, placeOf(root, name), path.Join(root, name), func(v *Visit) (*File, error) {
		return open(v, root, name, accept)
	})
}

// openWithin calls open, which is to open the file called name at a place, and waits no
// longer than p allows.
func openWithin(p *Budget, at Place, name string, open func(*Visit) (*File, error)) (*File, error) {
	f, err := AskWithin(p, at, open, func(f *File, err error) {
		if err == nil {
			_ = f.Close() // nobody waited for it
		}
	})
	if errors.Is(err, ErrNoAnswer) {
		err = &os.PathError{Op: "open", Path: name, Err: err}
	}
	if err != nil {
		return nil, err
	}
	return f.With(p), nil
}

// OpenTrusted is like [Open] for a trusted path, whose links may lead anywhere, as
// /proc/PID/exe does. It opens the file with the given capabilities.
func OpenTrusted(name string, rights capability.Set, accept func(*unix.Stat_t) error) (*File, error) {
	return openWithin(nil, Place{Near: name}, name, func(v *Visit) (*File, error) {
		fd, err := Path(name, rights)
		if err != nil {
			return nil, err
		}
		defer func() { _ = unix.Close(fd) }() // O_PATH
		return Hold(v, fd, name, rights, accept)
	})
}

// Stat returns the [os.Stat] of a trusted path.
func Stat(name string) (os.FileInfo, error) { return StatTrusted(name, AsUser) }

// StatRoot is [Stat] for the root of a process, which may belong to another user.
func StatRoot(root string) (os.FileInfo, error) { return StatTrusted(root, toReach(root)) }

// StatTrusted is like [Stat] with the given capabilities.
func StatTrusted(name string, rights capability.Set) (os.FileInfo, error) {
	found, err := Ask(Place{Near: name}, func(v *Visit) (os.FileInfo, error) {
		fd, err := Path(name, rights)
		if err != nil {
			return nil, err
		}
		defer func() { _ = unix.Close(fd) }() // O_PATH
		st, err := Look(v, fd)
		return newInfo(name, st), err
	}, func(os.FileInfo, error) {}) // it holds no resources
	if errors.Is(err, ErrNoAnswer) {
		err = &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Hold returns the file of fd, an O_PATH descriptor, if it is readable with the given
// capabilities and accept returns nil for it. name is its name in errors. fd stays open.
// Unlike the methods of the result, Hold may block on the file system, which it reports
// to v first.
func Hold(v *Visit, fd int, name string, rights capability.Set, accept func(*unix.Stat_t) error) (*File, error) {
	on, err := reach(v, fd)
	if err != nil {
		return nil, err
	}
	return hold(fd, name, on, rights, accept)
}

// hold is [Hold] for a file on a file system of the given standing.
func hold(fd int, name string, on standing, rights capability.Set, accept func(*unix.Stat_t) error) (*File, error) {
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
	// It is readable, so keep only the O_PATH descriptor.
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

// info is the result of fstat(2) as an [os.FileInfo]. os.File.Stat would ask the file
// system.
type info struct {
	name string
	st   syscall.Stat_t
}

func newInfo(name string, st unix.Stat_t) info {
	return info{path.Base(name), *(*syscall.Stat_t)(unsafe.Pointer(&st))}
}

// Same is [os.SameFile] for the FileInfos of this package.
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
		mode |= os.ModeIrregular // accept passed none of these
	}
	return mode
}

// Name returns the path at which the file was opened, including its root.
func (f *File) Name() string { return f.name }

// Stat returns the state of the file when it was opened.
func (f *File) Stat() (os.FileInfo, error) { return f.info, nil }

// Now returns the current fstat(2) of the file.
func (f *File) Now() (unix.Stat_t, error) {
	return asking(f, "stat", func() (st unix.Stat_t, err error) {
		err = f.control(func(fd int) (err error) {
			st, err = look(fd, f.on)
			return err
		})
		return st, err
	})
}

// OS returns a descriptor for programs that open the file by its path in /proc/self/fd.
// It is closed with f.
func (f *File) OS() *os.File { return f.file }

// Remote reports whether the file's file system may stop responding, as FUSE can.
func (f *File) Remote() bool { return f.on == remote }

// maxAsked is the maximum number of bytes of a single read. Large reads become several,
// and only each of them is time-limited.
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
			part, err = f.remotely(request{Op: opRead, Off: at, Limit: uint32(size)})
			if err == nil && len(part) < size {
				err = io.EOF
			}
		} else {
			part, err = reading(f, func(file *os.File) ([]byte, error) {
				own := make([]byte, size) // an abandoned read may still write to it
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

// Names returns up to limit names of entries in a directory.
func (f *File) Names(limit int) ([]string, error) {
	if f.on == remote {
		body, err := f.remotely(request{Op: opNames, Limit: uint32(max(min(limit, math.MaxInt32), 0))})
		return names(body), err
	}
	names, err := reading(f, func(file *os.File) ([]string, error) {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		return file.Readdirnames(limit)
	})
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// OpenEntry opens an entry of the directory f for reading, if accept returns nil for it. It
// is like [Open] but does not walk the path again. Links resolve below f.
func (f *File) OpenEntry(name string, accept func(*unix.Stat_t) error) (*File, error) {
	if f.on == onDisk {
		entry, err := f.openOnDisk(name, accept)
		if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.ELOOP) {
			return entry, err
		}
	}
	full := path.Join(f.name, name)
	return openWithin(f.budget, Place{Near: f.name}, full, func(v *Visit) (entry *File, err error) {
		err = f.control(func(dir int) error {
			fd, err := At(v, dir, name)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }() // O_PATH
			entry, err = Hold(v, fd, full, f.rights, accept)
			return err
		})
		return entry, err
	})
}

// openOnDisk is [File.OpenEntry] for a file on the same disk. The error is EXDEV or ELOOP if
// it is elsewhere, or a link.
func (f *File) openOnDisk(name string, accept func(*unix.Stat_t) error) (entry *File, err error) {
	err = f.control(func(dir int) error {
		full := path.Join(f.name, name)
		fd, err := at(dir, name, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err != nil {
			return &os.PathError{Op: "open", Path: full, Err: err}
		}
		defer func() { _ = unix.Close(fd) }() // O_PATH
		entry, err = hold(fd, full, onDisk, f.rights, accept)
		return err
	})
	return entry, err
}

// Close closes the file. It does not access the file system. Further calls do nothing.
func (f *File) Close() error {
	if err := f.file.Close(); !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}

// asking runs question, the operation op on the file's file system, with a time limit.
func asking[T any](f *File, op string, question func() (T, error)) (T, error) {
	if f.on == onDisk {
		return question()
	}
	on := Place{Device: f.info.st.Dev}
	got, err := AskWithin(f.budget, on, func(*Visit) (T, error) { return question() }, func(T, error) {}) // late results are dropped
	if errors.Is(err, ErrNoAnswer) {
		err = &os.PathError{Op: op, Path: f.name, Err: err}
	}
	return got, err
}

// reading runs read on the file, open for reading, with a time limit.
func reading[T any](f *File, read func(*os.File) (T, error)) (T, error) {
	return asking(f, "read", func() (got T, err error) {
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
		defer func() { _ = file.Close() }() // read-only
		return read(file)
	})
}

// remotely sends a request for the file to a helper process.
func (f *File) remotely(r request) ([]byte, error) {
	return asking(f, "read", func() (body []byte, err error) {
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

// control calls fn with the file's descriptor, which stays open during the call even if
// the file is closed concurrently.
func (f *File) control(fn func(fd int) error) error {
	conn, err := f.file.SyscallConn()
	if err != nil {
		return err
	}
	if conn.Control(func(fd uintptr) { err = fn(int(fd)) }) != nil {
		return os.ErrClosed // the only possible error
	}
	return err
}
