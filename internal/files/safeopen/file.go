package safeopen

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
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
	file   *os.File // open for reading if on is direct, otherwise O_PATH
	name   string
	info   info
	on     access // to its file system
	off    int64  // of the next Read
	rights capability.Set
	budget *Budget // of the readers
}

// Hold returns the file of fd, an O_PATH descriptor, if it is readable with the given
// capabilities and accept returns nil for it. name is its name in errors. fd stays open.
// Unlike the methods of the result, Hold may block on the file system, which it reports
// to r first.
func Hold(r *Request, fd int, name string, rights capability.Set, accept func(*unix.Stat_t) error) (*File, error) {
	on, err := reach(r, fd)
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
	if on == direct {
		f.file, err = reopen(fd, name, rights)
	} else if _, err = (operation{Code: opRead}).by(on, fd, name, rights); err == nil { // it is readable
		f.file, err = duplicate(fd, name)
	}
	if err != nil {
		return nil, named("open", name, err)
	}
	return f, nil
}

// duplicate returns another descriptor of the file called name.
func duplicate(fd int, name string) (*os.File, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(own), name), nil
}

// With returns f for a reader that waits no longer than the budget allows. Closing either closes
// both.
func (f *File) With(b *Budget) *File {
	other := *f
	other.budget = b
	return &other
}

// Clone returns another descriptor of the same file, which is closed on its own. If f is closed,
// the error is [os.ErrClosed].
func (f *File) Clone() (*File, error) {
	other := *f
	err := f.control(func(fd int) (err error) {
		other.file, err = duplicate(fd, f.name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &other, nil
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
func (f *File) Now() (unix.Stat_t, error) { return status(f.ask("stat", operation{Code: opStat})) }

// OS returns a descriptor for programs that open the file by its path in /proc/self/fd.
// It is closed with f.
func (f *File) OS() *os.File { return f.file }

// Remote reports whether the file's file system may stop responding, as FUSE can.
func (f *File) Remote() bool { return f.on == helped }

// maxAsked is the maximum number of bytes of a single read. Large reads become several,
// and only each of them is time-limited.
const maxAsked = 1 << 20

// ReadAt implements [io.ReaderAt].
func (f *File) ReadAt(b []byte, off int64) (n int, err error) {
	if f.on == direct {
		return f.file.ReadAt(b, off)
	}
	for n < len(b) && err == nil {
		size := min(len(b)-n, maxAsked)
		var part []byte
		part, err = f.ask("read", operation{Code: opRead, Off: off + int64(n), Limit: uint32(size)})
		if err == nil && len(part) < size {
			err = io.EOF
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
	return names(f.ask("read", operation{Code: opNames, Limit: uint32(max(min(limit, math.MaxInt32), 0))}))
}

// OpenEntry opens an entry of the directory f for reading, if accept returns nil for it. It
// is like [Open] but does not walk the path again. Links resolve below f.
func (f *File) OpenEntry(name string, accept func(*unix.Stat_t) error) (*File, error) {
	return open(f.budget, Backend{Path: f.name}, path.Join(f.name, name), f.rights, accept, func(r *Request) (fd int, err error) {
		err = f.control(func(dir int) error {
			fd, err = At(r, dir, name)
			return err
		})
		return fd, err
	})
}

// Close closes the file. It does not access the file system. Further calls do nothing.
func (f *File) Close() error {
	if err := f.file.Close(); !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}

// ask carries out an operation on the file, with a time limit if its file system may not respond.
func (f *File) ask(what string, o operation) (body []byte, err error) {
	do := func(*Request) (body []byte, err error) {
		err = f.control(func(fd int) error {
			body, err = o.by(f.on, fd, f.name, f.rights)
			return err
		})
		return body, err
	}
	if f.on == direct {
		body, err = do(nil)
	} else {
		body, err = Ask(f.budget, Backend{Device: f.info.st.Dev}, do)
	}
	return body, named(what, f.name, err)
}

// named returns err with the operation and path, unless it names them already.
func named(op, path string, err error) error {
	if already := (*os.PathError)(nil); err == nil || errors.As(err, &already) {
		return err
	}
	return &os.PathError{Op: op, Path: path, Err: err}
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
