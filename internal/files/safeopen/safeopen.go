// Package safeopen opens files at untrusted paths. A binary names its debug files, and a
// container controls every path within it. Opening the wrong file has side effects: a
// watchdog device starts, a tape rewinds, a pipe waits for a writer. So safeopen first
// finds a file without opening it (O_PATH), checks it, and then opens that same file only
// if it passes.
//
// The package also bounds calls into file systems that may hang, with [Ask]: a network file
// system whose server is gone, or FUSE whose daemon is stuck, blocks every process that
// opens or reads one of its files. There are three ways to access a file system:
//   - One in memory or on a local disk is accessed directly.
//   - FUSE is accessed by a helper process, and the wait for its answer is limited.
//   - All others are accessed by a thread of this process, and the wait for it is limited. A
//     helper would do, but asking one costs ten times as much.
//
// Files are opened with the user's privileges. The capabilities lent by fulgur's own file
// are used only for the root of a process and where the caller names them.
package safeopen

import (
	"errors"
	"os"
	"path"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/capability"
)

// AsUser is the empty set of capabilities.
const AsUser capability.Set = 0

// Path opens a trusted path as an O_PATH descriptor, with the given capabilities. The
// caller closes the descriptor. The error is an [os.PathError].
func Path(path string, rights capability.Set) (fd int, err error) {
	return capability.With(rights, func() (int, error) {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return fd, nil
	})
}

// processRoot matches the root links of processes, which the kernel maintains.
var processRoot = regexp.MustCompile("^/proc/[0-9]+/root$")

// toReach returns the capabilities needed to follow a root.
func toReach(root string) capability.Set {
	if processRoot.MatchString(root) {
		return capability.SetOf(capability.SysPtrace)
	}
	return AsUser
}

// pathDepth is the number of leading directories that identify a mount whose device is
// unknown. A mount that does not respond is then asked only once, and files beside it are
// not affected.
const pathDepth = 3

// backendOf returns the leading directories of name below root.
func backendOf(root, name string) Backend {
	parts := strings.SplitN(strings.TrimPrefix(path.Dir(path.Clean("/"+name)), "/"), "/", pathDepth+1)
	return Backend{Path: path.Join(root, path.Join(parts[:min(len(parts), pathDepth)]...))}
}

// Open opens name below the directory root for reading, if accept returns nil for it.
// Symbolic links resolve below root whatever they say: links in a container refer to the
// container's own files.
func Open(root, name string, accept func(*unix.Stat_t) error) (*File, error) {
	return OpenWithin(nil, root, name, accept)
}

// OpenWithin is like [Open] for a reader that waits no longer than the budget allows.
func OpenWithin(b *Budget, root, name string, accept func(*unix.Stat_t) error) (*File, error) {
	return open(b, backendOf(root, name), path.Join(root, name), AsUser, accept, func(r *Request) (int, error) { return Below(r, root, name) })
}

// OpenTrusted is like [Open] for a trusted path, whose links may lead anywhere, as
// /proc/PID/exe does. It opens the file with the given capabilities.
func OpenTrusted(name string, rights capability.Set, accept func(*unix.Stat_t) error) (*File, error) {
	return open(nil, Backend{Path: name}, name, rights, accept, func(*Request) (int, error) { return Path(name, rights) })
}

// open opens the file that find finds.
func open(b *Budget, first Backend, name string, rights capability.Set, accept func(*unix.Stat_t) error, find func(*Request) (int, error)) (*File, error) {
	f, err := Ask(b, first, func(r *Request) (*File, error) {
		fd, err := find(r)
		if err != nil {
			return nil, err
		}
		defer func() { _ = unix.Close(fd) }() // O_PATH
		return Hold(r, fd, name, rights, accept)
	})
	if err != nil {
		return nil, unanswered("open", name, err)
	}
	return f.With(b), nil
}

// unanswered adds the operation and path to an [ErrNoAnswer].
func unanswered(op, path string, err error) error {
	if errors.Is(err, ErrNoAnswer) {
		return &os.PathError{Op: op, Path: path, Err: err}
	}
	return err
}

// Stat returns the [os.Stat] of a trusted path.
func Stat(name string) (os.FileInfo, error) { return StatTrusted(name, AsUser) }

// StatRoot is [Stat] for the root of a process, which may belong to another user.
func StatRoot(root string) (os.FileInfo, error) { return StatTrusted(root, toReach(root)) }

// StatTrusted is like [Stat] with the given capabilities.
func StatTrusted(name string, rights capability.Set) (os.FileInfo, error) {
	found, err := Ask(nil, Backend{Path: name}, func(r *Request) (os.FileInfo, error) {
		fd, err := Path(name, rights)
		if err != nil {
			return nil, err
		}
		defer func() { _ = unix.Close(fd) }() // O_PATH
		st, err := Look(r, fd)
		if err != nil {
			return nil, err
		}
		return newInfo(name, st), nil
	})
	return found, unanswered("stat", name, err)
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
