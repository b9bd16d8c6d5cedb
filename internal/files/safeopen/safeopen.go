// Package safeopen opens files at paths that strangers chose: a binary names
// its debug files, a container has what it likes at any path. Opening the wrong
// thing is an act: the file of a watchdog starts it, a tape rewinds, a pipe
// waits for a writer. So what is at a path is found without opening it (O_PATH),
// then looked at, and the very same thing is opened only if it is what it should
// be. And what does not answer, as a mount whose server is gone, is not waited for.
//
// Files are opened with what the user may do. Only the root of a process, and what the
// caller names capabilities for, is opened with those that fulgur's file lent.
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

	"fulgur/internal/files/answer"
	"fulgur/internal/linux/capability"
)

// open is [Open] for those who may wait.
func open(v *answer.Visit, root, name string, accept func(*unix.Stat_t) error) (*File, error) {
	fd, err := Below(v, root, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // was only looked at
	return Hold(v, fd, filepath.Join(root, name), AsUser, accept)
}

// AsUser stands for no capabilities.
const AsUser capability.Set = 0

// Path opens what is at a trusted path, with the given capabilities, only to look at
// it. The caller closes the descriptor. The error is an [os.PathError].
func Path(path string, rights capability.Set) (fd int, err error) {
	return capability.With(rights, func() (int, error) {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return fd, nil
	})
}

// processRoot are the paths of the roots of processes, which are links of the kernel's.
var processRoot = regexp.MustCompile("^/proc/[0-9]+/root$")

// toReach returns the capabilities that it takes to reach a root.
func toReach(root string) capability.Set {
	if processRoot.MatchString(root) {
		return capability.SetOf(capability.SysPtrace)
	}
	return AsUser
}

// Below is [At] for a directory at a trusted path.
func Below(v *answer.Visit, root, name string) (fd int, err error) {
	dir, err := Path(root, toReach(root))
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(dir) }() // was only looked at
	return At(v, dir, name)
}

// maxReached is how many directories of a path are looked at on the way. What is
// mounted further down is rare, and paths may be as long as strangers like.
const maxReached = 16

// At opens what is at name below the directory that dir is a descriptor of, only
// to look at it. Neither links nor the magic ones of /proc lead out of that. The
// caller closes the descriptor. It tells v whose the directories on the way are. The
// error is an [os.PathError], or of [answer.Visit.Reach].
func At(v *answer.Visit, dir int, name string) (fd int, err error) {
	return find(v, dir, name, 0)
}

// EntryAt is [At], but a link at the end of name is not followed: the descriptor stands
// for the link itself.
func EntryAt(v *answer.Visit, dir int, name string) (fd int, err error) {
	return find(v, dir, name, unix.O_NOFOLLOW)
}

// step is a directory on the way.
type step struct {
	fd   int
	on   standing
	name string // from the directory where the way began, without links
}

// find goes from one directory to the next, and follows links by itself. So no step asks
// a remote file system, or one that nobody knows, of which a helper finds the rest.
func find(v *answer.Visit, dir int, name string, last int) (fd int, err error) {
	failed := func(err error) (int, error) { return -1, &os.PathError{Op: "open", Path: name, Err: err} }
	on, err := reach(v, dir)
	if err != nil {
		return -1, err
	}
	way := []step{{fd: dir, on: on}} // dir is the caller's
	leave := func(to int) {
		for _, s := range way[to:] {
			_ = unix.Close(s.fd) // was only looked at
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
			_ = unix.Close(fd) // was only looked at
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

// isMagic reports whether fd, called name in the directory dir, is a link of /proc that
// leads to something else than what it says.
func isMagic(dir, fd int, name string) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return false
	}
	// All others lead to what is in /proc, too.
	found, err := at(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err == nil {
		_ = unix.Close(found) // was only looked at
	}
	return errors.Is(err, unix.ELOOP)
}

// isDirectory reports whether fd stands for a directory, without asking its file system.
func isDirectory(fd int) bool {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// maxLinks is how many links the kernel follows, too.
const maxLinks = 40

// split returns the parts of a path that lead anywhere.
func split(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(part string) bool { return part == "" || part == "." })
}

// entry opens what is called name in the directory dir, be it a link, only to look at it.
func entry(dir int, name string) (int, error) {
	return at(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS,
	})
}

// readLink returns where what fd stands for leads, and whether that is a link.
func readLink(fd int) (target string, isLink bool, err error) {
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", b)
	switch {
	case err == unix.ENOENT || err == unix.EINVAL:
		return "", false, nil // it is none
	case err != nil:
		return "", false, os.NewSyscallError("readlinkat", err)
	case n == 0:
		return "", false, unix.ENOENT
	}
	return string(b[:n]), true, nil
}

// below opens what is at a path below the directory dir, only to look at it; flags are
// those that it adds. Links lead to places below dir.
func below(dir int, name string, flags int) (int, error) {
	return at(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | uint64(flags),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

func at(dir int, name string, how *unix.OpenHow) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, how)
		// EAGAIN: something was renamed meanwhile.
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
}

// reopen opens for reading what fd, a descriptor of [Path] or [At], stands for, with the
// given capabilities; name is what the file is called in errors. It leaves fd open.
func reopen(fd int, name string, rights capability.Set) (*os.File, error) {
	return capability.With(rights, func() (*os.File, error) { return reopenWith(fd, name) })
}

// reopenWith is [reopen] with what is in effect.
func reopenWith(fd int, name string) (*os.File, error) {
	// O_NONBLOCK: nor does a lease that somebody has on the file make us wait.
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	for {
		opened, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), flags, 0)
		switch err {
		case nil:
			// Of what does not block, Go's runtime would ask whether it is ready: FUSE
			// asks its daemon, and all of the process would wait for the answer.
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
