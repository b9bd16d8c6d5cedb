package process

import (
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

	"fulgur/internal/files/answer"
	"fulgur/internal/files/safeopen"
)

// FileKey is the identity of mapped code: the device number and inode as the
// process's mappings show them, and the inode's generation, 0 where unknown.
type FileKey struct {
	Maj, Min uint32
	Ino, Gen uint64
}

// Reasons why a file cannot be read, wrapped by [File.ReaderAt]'s errors
// beside fs.ErrPermission and [answer.ErrNone].
var (
	// ErrFileGone: neither a process that maps the file nor a path leads to
	// it any more.
	ErrFileGone = errors.New("file is gone")
	// ErrFileReplaced: its path leads to another file.
	ErrFileReplaced = errors.New("file was replaced by another")
)

// File is a mapped file, one for all processes that map it. It was opened
// when it was first seen, so that it can still be read after its deletion.
// Its methods may be called from several goroutines.
type File struct {
	// Key is the file's identity, and Path its path as the process saw it,
	// without the kernel's note that it was deleted. Path is untrusted text.
	Key  FileKey
	Path string

	cache *files
	// met is the period, see [Table.NextPeriod], in which it last stood in a
	// Location, so that it must stay readable; 0 if it never did.
	met atomic.Uint64

	// asking is held by a reader that opens it.
	asking sync.Mutex
	// queued says that it is among those that the cache opens next. It belongs to the
	// table's goroutine.
	queued bool

	mu  sync.RWMutex
	src source
	opened
	err error   // why it could not be opened
	was version // when it was first opened
}

// version tells what a file holds from what it held before it was written in place.
type version struct {
	size     int64
	modified unix.Timespec
	since    time.Time // that we know
}

// rewriteRest is for how long a file keeps its contents at least, as far as we care:
// who rewrites a file for ever makes us read it that often at most.
const rewriteRest = time.Second

// rewritten reports whether the file, which is open, holds something else than when it
// was first opened. What maps it from now on maps that.
func (f *File) rewritten() bool {
	f.mu.RLock()
	file, was := f.file, f.was
	f.mu.RUnlock()
	if file == nil || time.Since(was.since) < rewriteRest {
		return false
	}
	st, err := file.With(f.cache.patience).Now()
	return err == nil && (st.Size != was.size || st.Mtim != was.modified)
}

// ReaderAt returns a reader of the right file and the file's size in bytes,
// or an error that says why it cannot be had: [ErrFileGone],
// [ErrFileReplaced], [answer.ErrNone] or fs.ErrPermission. The reader may be used
// from several goroutines and needs no closing.
func (f *File) ReaderAt() (io.ReaderAt, int64, error) {
	o, err := f.acquire()
	if err != nil {
		return nil, 0, err
	}
	return reader{f}, o.size, nil
}

// Root returns the directory below which Path is what a process that maps the
// file means by it, such as "/proc/42/root", and below which what belongs to
// the file is best looked for. It is empty if all such processes are gone and
// the path leads elsewhere now. A process that took over the number of one that
// is gone may have another root, so what is found there needs to be checked.
func (f *File) Root() string {
	f.mu.RLock()
	src := f.src
	f.mu.RUnlock()
	root, _ := answer.Ask(near(src.pid), func(v *answer.Visit) (string, error) {
		return src.root(v, f.Key, f.Path), nil
	}, func(string, error) {}) // no answer is no root
	return root
}

// Is reports whether f is the file that is open as o.
func (f *File) Is(o *safeopen.File) bool {
	info, err := o.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && sameFile(unix.Stat_t{Dev: st.Dev, Ino: st.Ino}, f.Key)
}

// reader reads a file whose descriptor may have been closed meanwhile.
type reader struct{ f *File }

func (r reader) ReadAt(b []byte, off int64) (int, error) {
	for {
		o, err := r.f.acquire()
		if err != nil {
			return 0, err
		}
		n, err := o.file.ReadAt(b, off)
		if !errors.Is(err, os.ErrClosed) {
			return n, err
		}
	}
}

// acquire makes sure that the file is open, and returns it. It may be closed again
// at any time to save descriptors.
func (f *File) acquire() (opened, error) {
	for {
		f.mu.RLock()
		o, src := f.opened, f.src
		f.mu.RUnlock()
		if o.file != nil {
			return o, nil
		}
		if err := f.open(src); err != nil {
			return opened{}, err
		}
	}
}

// open opens the file from src for a reader, unless it is open.
func (f *File) open(src source) error {
	f.asking.Lock()
	defer f.asking.Unlock()
	if f.isOpen() {
		return nil
	}
	answer.AskEach(nil, []answer.Question[opened]{f.question(src)})
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.file == nil && f.err != nil {
		return fmt.Errorf("open mapped file %s: %w", f.Path, f.err)
	}
	return nil
}

// question asks for the file that src has. None of the ways there is free of
// strangers: even the directory of a process's mappings can be looked at only while
// no thread of that holds them, which may wait for a file system in turn.
func (f *File) question(src source) answer.Question[opened] {
	f.mu.Lock()
	f.src = src
	f.mu.Unlock()
	key := f.Key
	return answer.Question[opened]{
		Who:      near(src.pid),
		Ask:      func(v *answer.Visit) (opened, error) { return src.open(v, key, f.Path) },
		Answered: f.adopt,
		Late: func(o opened, err error) {
			if err == nil {
				f.adopt(o, nil)
			}
		},
	}
}

// adopt notes how opening the file went.
func (f *File) adopt(o opened, err error) {
	f.mu.Lock()
	if f.file != nil {
		f.mu.Unlock() // somebody else was faster
		if err == nil {
			_ = o.file.Close() // was not even read
		}
		return
	}
	f.opened, f.err = o, err
	if err != nil {
		slog.Debug("mapped file not opened", "path", f.Path, "inode", f.Key.Ino, "error", err)
	}
	if err == nil && f.was.since.IsZero() {
		f.was = version{f.size, f.modified, time.Now()}
	}
	f.mu.Unlock()
	if err == nil {
		f.cache.opened(f)
	}
}

// close gives the file's descriptor back; reading opens it again.
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

// isOpen reports whether a descriptor holds the file, and with it its inode
// number.
func (f *File) isOpen() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.file != nil
}

// seen notes that src maps the file too. It reports whether the file should be opened
// from there: it could not be so far, and not for lack of a permission that will not be
// there now either.
func (f *File) seen(src source) (retry bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		return false
	}
	f.src = src
	return f.err != nil && !errors.Is(f.err, fs.ErrPermission)
}

// isELF reports whether the file starts like an ELF file.
func (f *File) isELF() bool {
	f.mu.RLock()
	file := f.file
	f.mu.RUnlock()
	if file == nil {
		return false
	}
	var magic [4]byte
	_, err := file.With(f.cache.patience).ReadAt(magic[:], 0)
	return err == nil && string(magic[:]) == "\x7fELF"
}
