// Package atomicfile writes output files that appear complete or not at all.
package atomicfile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/ctxfile"
)

// File is an output that is being written. It is not safe for concurrent use.
//
// The data of a regular file has no name until [File.Commit], or a temporary name if the
// file system cannot do without. So only a process that is killed leaves something
// behind, and not under the requested name.
type File struct {
	path string // as given
	f    *os.File
	w    *bufio.Writer

	// target is the file that Commit puts in place: path with its links followed. It is
	// empty if f is written directly.
	target string
	// temporary is the data's name in target's directory until Commit, or empty.
	temporary string
	standard  bool // f belongs to the process and stays open
	fresh     bool // target must not exist
}

// Create begins the output named path. It creates what it needs at once, so that it fails
// early if path is not writable. An existing file keeps its contents until Commit, which
// preserves its permissions and, if allowed, its owner. A new file gets mode 0644 less
// the umask. A symbolic link stays, and the file it refers to is written.
//
// In a directory that others can write to, anyone who guesses a name can take it first.
// There, another user's file is replaced by our own, with our owner and permissions.
// Another user's links, pipes and devices are rejected, and so is a file that the kernel
// would not let us replace (the sticky bit). On the way to the directory, another user's
// links in sticky directories are rejected.
//
// "-" and /dev/stdout mean standard output, /dev/stderr standard error. These, pipes,
// terminals and other devices are written immediately. Once ctx is done, Create and all writes
// no longer wait for a reader, see [ctxfile.Writer].
func Create(ctx context.Context, path string) (*File, error) {
	f := &File{path: path}
	if err := f.open(ctx); err != nil {
		return nil, fmt.Errorf("create %s: %w", path, reason(err))
	}
	var to io.Writer = f.f
	if f.target == "" {
		to = ctxfile.NewWriter(ctx, f.f)
	}
	f.w = bufio.NewWriterSize(to, 64<<10)
	return f, nil
}

// CreateNew is like [Create] but requires that the file does not exist: it and Commit
// fail with [fs.ErrExist] if it does, even if another process creates it concurrently.
func CreateNew(path string) (*File, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("create %s: %w", path, fs.ErrExist)
	}
	f, err := Create(context.Background(), path) // a new file has no reader
	if err != nil {
		return nil, err
	}
	f.fresh = true
	return f, nil
}

func (f *File) open(ctx context.Context) error {
	switch f.path {
	case "":
		return unix.ENOENT
	case "-", "/dev/stdout":
		f.f, f.standard = os.Stdout, true
		return nil
	case "/dev/stderr":
		f.f, f.standard = os.Stderr, true
		return nil
	}
	old, err := os.Stat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	target, err := followLinks(f.path)
	if err != nil {
		return err
	}
	in, err := folderOf(target)
	if err != nil {
		return err
	}
	if old != nil && !old.Mode().IsRegular() {
		return f.openDirectly(ctx, old, in)
	}
	if old != nil {
		// rename(2) does not check whether the old file is writable.
		if err := unix.Faccessat(unix.AT_FDCWD, f.path, unix.W_OK, unix.AT_EACCESS); err != nil {
			return err
		}
		if in.keeps(old) {
			return errStrangersFile
		}
	}
	f.target = target
	if err := f.openTemporary(); err != nil {
		return err
	}
	if old == nil || in.letsIn(old) {
		return nil
	}
	if err := keepMetadata(f.f, old); err != nil {
		return errors.Join(err, f.Abort())
	}
	return nil
}

// openDirectly opens a pipe, terminal or other device in the given directory.
func (f *File) openDirectly(ctx context.Context, old fs.FileInfo, in folder) error {
	if in.letsIn(old) {
		return errStrangersPipe
	}
	file, err := ctxfile.OpenPipe(ctx, f.path)
	if err != nil {
		return err
	}
	if now, err := file.Stat(); err != nil || !os.SameFile(now, old) {
		return errors.Join(errReplaced, err, file.Close())
	}
	f.f = file
	return nil
}

// followLinks returns the file that path leads to. It need not exist.
func followLinks(path string) (string, error) {
	for range maxLinks {
		link, err := readLink(path)
		if errors.Is(err, errNoLink) || errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(link) {
			// Not filepath.Join: in "a/../b", a may be a link too.
			link = directory(path) + "/" + link
		}
		path = link
	}
	return "", unix.ELOOP
}

// directory returns the directory of path without cleaning it.
func directory(path string) string {
	i := strings.LastIndexByte(path, '/')
	switch {
	case i < 0:
		return "."
	case i == 0:
		return "/"
	}
	return path[:i]
}

// openTemporary opens an unnamed file in the target's directory, or one with a temporary
// name if the file system does not support O_TMPFILE.
func (f *File) openTemporary() error {
	if strings.HasSuffix(f.target, "/") {
		return unix.EISDIR
	}
	dir, err := enter(directory(f.target))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // O_PATH
	f.f, err = os.OpenFile(below(dir, ""), os.O_WRONLY|unix.O_TMPFILE, 0o644)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		return f.openNamed(dir)
	}
	return err
}

// openNamed opens a file with a temporary name in the target's directory.
func (f *File) openNamed(dir *os.File) error {
	name := f.temporaryName()
	var err error
	f.f, err = os.OpenFile(below(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		f.temporary = name
	}
	return err
}

// temporaryName returns an unused name for the target's directory. It truncates the target's own
// name to fit any file system.
func (f *File) temporaryName() string {
	base := filepath.Base(f.target)
	return "." + base[:min(len(base), 200)] + "." +
		strconv.FormatUint(rand.Uint64(), 36) + ".tmp"
}

// keepMetadata gives f the permissions and, if we may, the owner of old.
func keepMetadata(f *os.File, old fs.FileInfo) error {
	if s, ok := old.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(s.Uid), int(s.Gid))
	}
	return f.Chmod(old.Mode().Perm())
}

// Write implements io.Writer. Data is buffered, so an error may stem from an earlier
// Write.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	return n, f.wrap(err)
}

// Commit flushes the data and puts the file in place. If it fails, nothing is left
// behind. Afterwards the file must not be used, except that Abort has no effect.
//
// Commit does not sync to disk: making every user wait is not worth the rare power
// failure.
func (f *File) Commit() error {
	err := f.wrap(f.commit())
	if err != nil {
		err = errors.Join(err, f.Abort())
	}
	return err
}

func (f *File) commit() error {
	if err := f.w.Flush(); err != nil {
		return err
	}
	if f.target == "" {
		return f.close()
	}
	// Not the directory of open: it may have been replaced.
	at, err := enter(directory(f.target))
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }() // O_PATH
	dir, base := int(at.Fd()), filepath.Base(f.target)
	if f.temporary == "" {
		name := f.temporaryName()
		// Unprivileged processes can link an open file only through /proc.
		open := fmt.Sprintf("/proc/self/fd/%d", f.f.Fd())
		if err := again(func() error { return unix.Linkat(unix.AT_FDCWD, open, dir, name, unix.AT_SYMLINK_FOLLOW) }); err != nil {
			return err
		}
		f.temporary = name
	}
	if err := f.close(); err != nil {
		return err
	}
	if f.fresh {
		return f.place(dir, base)
	}
	// Not a link to its own name, which works only while the name is free.
	if err := again(func() error { return unix.Renameat(dir, f.temporary, dir, base) }); err != nil {
		return err
	}
	f.temporary = ""
	return nil
}

// place gives the file its name in the directory dir, which must be free.
func (f *File) place(dir int, base string) error {
	err := again(func() error { return unix.Renameat2(dir, f.temporary, dir, base, unix.RENAME_NOREPLACE) })
	if !errors.Is(err, unix.EINVAL) {
		if err == nil {
			f.temporary = ""
		}
		return err
	}
	// Network file systems do not support RENAME_NOREPLACE, but they do support links.
	if err := again(func() error { return unix.Linkat(dir, f.temporary, dir, base, 0) }); err != nil {
		return err
	}
	return f.Abort() // removes the temporary name
}

// Abort discards the output and leaves nothing of a regular file behind. It has no effect
// after Commit, so it can be deferred. It fails only if a temporary name cannot be
// removed.
func (f *File) Abort() error {
	_ = f.close() // the data is discarded
	if f.temporary == "" {
		return nil
	}
	name, in := f.temporary, directory(f.target)
	f.temporary = ""
	dir, err := enter(in)
	if err == nil {
		err = again(func() error { return unix.Unlinkat(int(dir.Fd()), name, 0) })
		_ = dir.Close() // O_PATH
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: in + "/" + name, Err: err}
	}
	return nil
}

// close closes f once. A network file system may report a full disk only here.
func (f *File) close() error {
	if f.standard || f.f == nil {
		return nil
	}
	file := f.f
	f.f = nil
	return file.Close()
}

// wrap adds the path and the remedy to err.
func (f *File) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("write %s: %w: free some space or choose another place", f.path, reason(err))
	}
	return fmt.Errorf("write %s: %w", f.path, reason(err))
}

// reason returns the cause of a failed system call without the path, which means nothing
// to users if the file is temporary.
func reason(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	if e := (*os.LinkError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}
