package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/symbols/elffile"
)

// FileKey identifies mapped code: the device number and inode as shown by the process's
// mappings, and the inode's generation, or 0 if unknown.
type FileKey struct {
	Maj, Min uint32
	Ino, Gen uint64
}

// Reasons why a file cannot be read. The errors of [File.ReaderAt] wrap these,
// fs.ErrPermission or [safeopen.ErrNoAnswer].
var (
	// ErrFileGone means that the file is no longer reachable by a process that maps it or
	// by its path.
	ErrFileGone = errors.New("file is gone")
	// ErrFileReplaced means that another file is at its path.
	ErrFileReplaced = errors.New("file was replaced by another")
)

// File is a mapped file, shared by all processes that map it. It is opened when it is
// first seen, so that it remains readable after it is deleted. Its methods are safe for
// concurrent use.
type File struct {
	// Key identifies the file. Path is its path as the process saw it, without the
	// kernel's "(deleted)" suffix, and is untrusted.
	Key  FileKey
	Path string

	cache *files
	// lastUsed is the last period (see [Table.NextPeriod]) in which a [Location] referred to
	// the file, or 0. The file stays readable until that period is old.
	lastUsed atomic.Uint64

	// opening is held by a reader while it opens the file.
	opening sync.Mutex
	// queued means that the cache will open the file. changed means that the file was
	// rewritten, as of the cache's round checked. They belong to the table's goroutine.
	queued  bool
	changed bool
	checked uint64

	mu  sync.RWMutex
	src origin
	opened
	err     error   // why it could not be opened
	initial version // when the file was first opened
}

// version distinguishes the contents of a file that is rewritten in place.
type version struct {
	size     int64
	modified unix.Timespec
	since    time.Time // when we first saw it
}

// versionInterval is the minimum time between two versions of a file. It limits how often a
// file that is rewritten endlessly is read.
const versionInterval = time.Second

// rewritten reports whether the contents of the file, which is open, have changed since
// it was first opened. New mappings then map the new contents. Records are read in
// rounds, long after the kernel wrote them, so one check per round is as good as a check
// per record.
func (f *File) rewritten() bool {
	if f.checked != f.cache.round {
		f.checked, f.changed = f.cache.round, f.differs()
	}
	return f.changed
}

// differs compares the open file with the state in which it was first opened.
func (f *File) differs() bool {
	f.mu.RLock()
	file, initial := f.file, f.initial
	f.mu.RUnlock()
	if file == nil || time.Since(initial.since) < versionInterval {
		return false
	}
	st, err := file.With(f.cache.budget).Now()
	return err == nil && (st.Size != initial.size || st.Mtim != initial.modified)
}

// ReaderAt returns a reader of the file and its size in bytes. The error wraps
// [ErrFileGone], [ErrFileReplaced], [safeopen.ErrNoAnswer] or fs.ErrPermission if the file is
// not readable. The reader is safe for concurrent use and need not be closed.
func (f *File) ReaderAt() (io.ReaderAt, int64, error) {
	o, err := f.acquire(nil)
	if err != nil {
		return nil, 0, err
	}
	return reader{f}, o.size, nil
}

// ELF reads the headers of an ELF file. The errors are those of [File.ReaderAt] and [elffile.New]. The result need
// not be closed.
func (f *File) ELF() (*elffile.File, error) {
	r, size, err := f.ReaderAt()
	if err != nil {
		return nil, err
	}
	return elffile.New(r, size, f.Path)
}

// Root returns the directory relative to which a process that maps the file interprets Path,
// such as "/proc/42/root". Look for files that belong to this one, such as debug files, below
// it. Root is empty if all such processes are gone and the path now leads elsewhere. The
// process's ID may have been reused by a process with another root, so check the files found
// there.
func (f *File) Root() string {
	f.mu.RLock()
	src := f.src
	f.mu.RUnlock()
	root, _ := safeopen.Ask(nil, procRoot(src.pid), func(r *safeopen.Request) (string, error) {
		return src.root(r, f.Key, f.Path), nil
	}) // without an answer, there is no root
	return root
}

// Is reports whether f is the file opened as o.
func (f *File) Is(o *safeopen.File) bool {
	info, err := o.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && sameFile(unix.Stat_t{Dev: st.Dev, Ino: st.Ino}, f.Key)
}

// Hold returns the open file, for the kernel to attach programs to it: it is the mapped one,
// whatever is at its path. The caller closes it. Errors are those of [File.ReaderAt].
func (f *File) Hold() (*safeopen.File, error) {
	for {
		o, err := f.acquire(nil)
		if err != nil {
			return nil, err
		}
		held, err := o.file.Clone()
		if !errors.Is(err, os.ErrClosed) {
			return held, err
		}
	}
}

// reader reads a file whose descriptor may be closed in the meantime.
type reader struct{ f *File }

func (r reader) ReadAt(b []byte, off int64) (int, error) {
	for {
		o, err := r.f.acquire(nil)
		if err != nil {
			return 0, err
		}
		n, err := o.file.ReadAt(b, off)
		if !errors.Is(err, os.ErrClosed) {
			return n, err
		}
	}
}

// acquire returns the open file. If necessary, it opens the file within the budget. The
// file may be closed again at any time to save descriptors.
func (f *File) acquire(b *safeopen.Budget) (opened, error) {
	for {
		f.mu.RLock()
		o, src := f.opened, f.src
		f.mu.RUnlock()
		if o.file != nil {
			return o, nil
		}
		if err := f.open(b, src); err != nil {
			return opened{}, err
		}
	}
}

// open opens the file from src for a reader, within the budget, unless it is already
// open.
func (f *File) open(b *safeopen.Budget, src origin) error {
	f.opening.Lock()
	defer f.opening.Unlock()
	if f.isOpen() {
		return nil
	}
	_, err := f.openFrom(b, src)
	if err != nil && !f.isOpen() {
		return fmt.Errorf("open mapped file %s: %w", f.Path, err)
	}
	return nil
}

// openFrom opens the file from src within the budget. Every way to the file may
// block: even the directory of a process's mappings is locked while a thread changes
// them, and that thread may wait for a file system.
func (f *File) openFrom(b *safeopen.Budget, src origin) (opened, error) {
	f.mu.Lock()
	f.src = src
	f.mu.Unlock()
	key := f.Key
	o, err := safeopen.AskLate(b, procRoot(src.pid), func(r *safeopen.Request) (opened, error) { return src.open(r, key, f.Path) },
		func(o opened, err error) {
			if err == nil {
				f.setOpened(o, nil)
			}
		})
	f.setOpened(o, err)
	return o, err
}

// setOpened records the result of opening the file.
func (f *File) setOpened(o opened, err error) {
	f.mu.Lock()
	if f.file != nil {
		f.mu.Unlock() // another goroutine was faster
		if err == nil {
			_ = o.file.Close() // nothing was read from it
		}
		return
	}
	f.opened, f.err = o, err
	if err != nil {
		slog.Debug("mapped file not opened", "path", f.Path, "inode", f.Key.Ino, "error", err)
	}
	if err == nil && f.initial.since.IsZero() {
		f.initial = version{f.size, f.modified, time.Now()}
	}
	f.mu.Unlock()
	if err == nil {
		f.cache.opened(f)
	}
}

// close closes the file's descriptor. Reading the file opens it again.
func (f *File) close() error {
	f.mu.Lock()
	file := f.file
	f.file = nil
	f.mu.Unlock()
	if file == nil {
		return nil
	}
	return file.Close()
}

// isOpen reports whether a descriptor keeps the file, and so its inode number, in use.
func (f *File) isOpen() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.file != nil
}

// seen records that src maps the file too. It reports whether to try opening the file from
// there: only if an earlier attempt failed, but not for lack of permission, which would be
// lacking there too.
func (f *File) seen(src origin) (retry bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		return false
	}
	f.src = src
	return f.err != nil && !errors.Is(f.err, fs.ErrPermission)
}

// isProgram reports whether the file is a program or library by its magic numbers: ELF, or PE as of Wine and
// Mono.
func (f *File) isProgram() bool {
	f.mu.RLock()
	file := f.file
	f.mu.RUnlock()
	if file == nil {
		return false
	}
	r := file.With(f.cache.budget)
	var head [64]byte // a DOS header, or an ELF header
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return false
	}
	var magic [4]byte
	switch {
	case string(head[:4]) == "\x7fELF":
		return true
	case string(head[:2]) != "MZ":
		return false
	}
	_, err := r.ReadAt(magic[:], int64(binary.LittleEndian.Uint32(head[60:])))
	return err == nil && string(magic[:]) == "PE\x00\x00"
}
