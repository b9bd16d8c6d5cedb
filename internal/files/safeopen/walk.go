package safeopen

import (
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Below is like [At] with a directory at a trusted path.
func Below(r *Request, root, name string) (fd int, err error) {
	dir, err := Path(root, toReach(root))
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(dir) }() // O_PATH
	return At(r, dir, name)
}

// maxReached is the number of directories of a path that are checked on the way. Mounts
// further down are rare, and strangers control the length of paths.
const maxReached = 16

// At opens name below the directory dir as an O_PATH descriptor. Neither symbolic links
// nor magic links of /proc lead out of dir. The caller closes the descriptor. At reports
// the file systems on the way to r. The error is an [os.PathError], or comes from
// [Request.Enter].
func At(r *Request, dir int, name string) (fd int, err error) {
	return find(r, dir, name, 0)
}

// EntryAt is like [At] but does not follow a link at the end of name: the descriptor
// refers to the link itself.
func EntryAt(r *Request, dir int, name string) (fd int, err error) {
	return find(r, dir, name, unix.O_NOFOLLOW)
}

// step is a directory on the way.
type step struct {
	fd   int
	on   access
	name string // relative to the starting directory, without links
}

// find walks the path one directory at a time and follows links itself. So no step
// touches a remote or unknown file system: for these, a helper process resolves the rest.
func find(r *Request, dir int, name string, last uint32) (fd int, err error) {
	failed := func(err error) (int, error) { return -1, &os.PathError{Op: "open", Path: name, Err: err} }
	on, err := reach(r, dir)
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
	if strings.HasSuffix(name, "/") && len(parts) > 0 {
		parts = append(parts, ".") // only a directory has one
	}
	for len(parts) > 0 {
		at, part := way[len(way)-1], parts[0]
		if at.on == helped || len(way) > maxReached {
			rest := strings.TrimLeft(at.name+"/"+strings.Join(parts, "/"), "/")
			_, fd, err := remotely(operation{Code: opFind, Flags: last}, dir, rest)
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
			if links++; magic || links > maxLinks {
				return failed(unix.ELOOP)
			}
			if strings.HasPrefix(target, "/") {
				leave(1)
			}
			parts = append(split(target), parts...)
			continue
		case len(parts) == 0:
			return fd, nil
		}
		on, err := reach(r, fd)
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
func below(dir int, name string, flags uint32) (int, error) {
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
