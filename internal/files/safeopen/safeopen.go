// Package safeopen opens files at untrusted paths. A binary names its debug files, and a
// container controls every path within it. Opening the wrong file has side effects: a
// watchdog device starts, a tape rewinds, a pipe waits for a writer. So safeopen first
// finds a file without opening it (O_PATH), checks it, and then opens that same file only
// if it passes.
//
// The package also bounds calls into file systems that may hang, with [Ask]: a network file
// system whose server is gone, or FUSE whose daemon is stuck, blocks every process that
// opens or reads one of its files.
//
// Files are opened with the user's privileges. The capabilities lent by fulgur's own file
// are used only for the root of a process and where the caller names them.
package safeopen

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/capability"
)

// open is like [Open] but may block.
func open(v *Visit, root, name string, accept func(*unix.Stat_t) error) (*File, error) {
	fd, err := Below(v, root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // O_PATH
	return Hold(v, fd, filepath.Join(root, name), AsUser, accept)
}

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

// Below is like [At] with a directory at a trusted path.
func Below(v *Visit, root, name string) (fd int, err error) {
	dir, err := Path(root, toReach(root))
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(dir) }() // O_PATH
	return At(v, dir, name)
}

// maxReached is the number of directories of a path that are checked on the way. Mounts
// further down are rare, and strangers control the length of paths.
const maxReached = 16

// At opens name below the directory dir as an O_PATH descriptor. Neither symbolic links
// nor magic links of /proc lead out of dir. The caller closes the descriptor. At reports
// the file systems on the way to v. The error is an [os.PathError], or comes from
// [Visit.Reach].
func At(v *Visit, dir int, name string) (fd int, err error) {
	return find(v, dir, name, 0)
}

// EntryAt is like [At] but does not follow a link at the end of name: the descriptor
// refers to the link itself.
func EntryAt(v *Visit, dir int, name string) (fd int, err error) {
	return find(v, dir, name, unix.O_NOFOLLOW)
}

// step is a directory on the way.
type step struct {
	fd   int
	on   standing
	name string // relative to the starting directory, without links
}

// find walks the path one directory at a time and follows links itself. So no step
// touches a remote or unknown file system: for these, a helper process resolves the rest.
func find(v *Visit, dir int, name string, last int) (fd int, err error) {
	failed := func(err error) (int, error) { return -1, &os.PathError{Op: "open", Path: name, Err: err} }
	on, err := reach(v, dir)
	if err != nil {
		return -1, err
	}
	way := []step{{fd: dir, on: on}} // the caller owns dir
	leave := func(to int) {
		for _, s := range way[to:] {
			_ = unix.Close(s.fd) // O_PATH
		}
		way = way[:to]
	}
	defer func() { leave(1) }()

	parts, links := split(name), 0
	for len(parts) > 0 {
		at, part := way[len(way)-1], parts[0]
		if at.on == remote || len(way) > maxReached {
			rest := strings.TrimLeft(at.name+"/"+strings.Join(parts, "/"), "/")
			_, fd, err := remotely(request{Op: opFind, Flags: uint32(last)}, dir, rest)
			switch {
			case err != nil:
				return failed(err)
			case fd < 0:
				return failed(unix.EIO)
			}
			return fd, nil
		}
		parts = parts[1:]
		if part == ".." {
			leave(max(len(way)-1, 1))
			continue
		}
		fd, err := entry(at.fd, part)
		if err != nil {
			return failed(err)
		}
		if len(parts) == 0 && last&unix.O_NOFOLLOW != 0 {
			return fd, nil
		}
		target, isLink, err := readLink(fd)
		switch {
		case err != nil:
			return failed(errors.Join(err, unix.Close(fd)))
		case isLink:
			magic := isMagic(at.fd, fd, part)
			_ = unix.Close(fd) // O_PATH
			if magic {
				return failed(unix.ELOOP)
			}
			if links++; links > maxLinks {
				return failed(unix.ELOOP)
			}
			if strings.HasPrefix(target, "/") {
				leave(1)
			}
			parts = append(split(target), parts...)
			continue
		case len(parts) == 0:
			if strings.HasSuffix(name, "/") && !isDirectory(fd) {
				_ = unix.Close(fd) // likewise
				return failed(unix.ENOTDIR)
			}
			return fd, nil
		}
		on, err := reach(v, fd)
		if err != nil {
			_ = unix.Close(fd) // likewise
			return -1, err
		}
		way = append(way, step{fd, on, at.name + "/" + part})
	}
	if fd, err = unix.FcntlInt(uintptr(way[len(way)-1].fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return failed(err)
	}
	return fd, nil
}

// isMagic reports whether fd, the entry name of directory dir, is a magic link of /proc,
// which leads elsewhere than its text says.
func isMagic(dir, fd int, name string) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return false
	}
	// All other links lead to files in /proc too.
	found, err := at(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err == nil {
		_ = unix.Close(found) // O_PATH
	}
	return errors.Is(err, unix.ELOOP)
}

// isDirectory reports whether fd is a directory, without asking its file system.
func isDirectory(fd int) bool {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// maxLinks is the kernel's limit of links in a path.
const maxLinks = 40

// split returns the elements of a path, without empty and "." ones.
func split(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(part string) bool { return part == "" || part == "." })
}

// entry opens an entry of the directory dir as an O_PATH descriptor, without following a
// link.
func entry(dir int, name string) (int, error) {
	return at(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS,
	})
}

// readLink returns the target of fd, and whether fd is a link.
func readLink(fd int) (target string, isLink bool, err error) {
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", b)
	switch {
	case err == unix.ENOENT || err == unix.EINVAL:
		return "", false, nil // not a link
	case err != nil:
		return "", false, os.NewSyscallError("readlinkat", err)
	case n == 0:
		return "", false, unix.ENOENT
	}
	return string(b[:n]), true, nil
}

// below opens a path below the directory dir as an O_PATH descriptor, with additional
// flags. Links resolve within dir.
func below(dir int, name string, flags int) (int, error) {
	return at(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | uint64(flags),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

func at(dir int, name string, how *unix.OpenHow) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, how)
		// EAGAIN: a concurrent rename.
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
}

// reopen opens the file of fd, an O_PATH descriptor, for reading with the given
// capabilities. name is used in errors. fd stays open.
func reopen(fd int, name string, rights capability.Set) (*os.File, error) {
	return capability.With(rights, func() (*os.File, error) { return reopenWith(fd, name) })
}

// reopenWith is [reopen] with the capabilities in effect.
func reopenWith(fd int, name string) (*os.File, error) {
	// O_NONBLOCK also avoids waiting for a lease on the file.
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	for {
		opened, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), flags, 0)
		switch err {
		case nil:
			// The Go runtime polls nonblocking files for readiness. FUSE forwards the
			// poll to its daemon, and the whole process would wait for the answer.
			if err := unix.SetNonblock(opened, false); err != nil {
				return nil, errors.Join(&os.PathError{Op: "open", Path: name, Err: err}, unix.Close(opened))
			}
			return os.NewFile(uintptr(opened), name), nil
		case unix.EINTR:
		default:
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
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
