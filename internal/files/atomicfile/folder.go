package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reasons to reject an output path that another user prepared.
var (
	errStrangersFile = errors.New("it is another user's file, in a folder where only its owner can replace it: choose another name")
	errStrangersPipe = errors.New("it is another user's pipe or device, in a folder that others can write to: choose another name")
	errStrangersLink = errors.New("it is another user's symbolic link, in a folder that others can write to: choose another name")
	errStrangersWay  = errors.New("a symbolic link of another user leads there, in a folder that others can write to: give the path without the link")
	errReplaced      = errors.New("it was replaced by something else just now")
)

// folder describes a directory by stat(2): anyone who can write to it may own its
// entries. The sysctls fs.protected_symlinks and its relatives apply the same checks to
// sticky directories, where they are enabled.
type folder struct{ stat unix.Stat_t }

// folderOf returns the directory that contains path. It is up to the caller to report
// that it does not exist.
func folderOf(path string) (f folder, err error) {
	dir, err := enter(directory(path))
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	defer func() { _ = dir.Close() }() // O_PATH
	return describe(dir)
}

// describe returns the directory dir.
func describe(dir *os.File) (f folder, err error) {
	err = again(func() error { return unix.Fstat(int(dir.Fd()), &f.stat) })
	return f, err
}

// misleads reports whether another user may have put link there to lead us elsewhere. This
// is the rule of fs.protected_symlinks. In other folders that others can write to, they can
// replace even the directories on the way.
func (f folder) misleads(link *unix.Stat_t) bool {
	const shared = unix.S_ISVTX | unix.S_IWOTH
	return f.stat.Mode&shared == shared && link.Uid != 0 && int(link.Uid) != os.Geteuid() && link.Uid != f.stat.Uid
}

// letsIn reports whether a user other than us and the directory's owner, who can do
// anything in it, may have put file there.
func (f folder) letsIn(file fs.FileInfo) bool {
	const others = unix.S_IWGRP | unix.S_IWOTH
	owner := file.Sys().(*syscall.Stat_t).Uid
	return f.stat.Mode&others != 0 && int(owner) != os.Geteuid() && owner != f.stat.Uid
}

// keeps reports whether we cannot replace another user's file.
func (f folder) keeps(file fs.FileInfo) bool {
	us := os.Geteuid()
	return f.stat.Mode&unix.S_ISVTX != 0 && us != 0 && us != int(f.stat.Uid) && us != int(file.Sys().(*syscall.Stat_t).Uid)
}

// errNoLink is returned by [readLink] if the path is not a symbolic link.
var errNoLink = errors.New("no symbolic link")

// readLink returns the target of a symbolic link, unless another user may have created
// the link.
func readLink(path string) (string, error) {
	dir, err := enter(directory(path))
	if err != nil {
		return "", err
	}
	defer func() { _ = dir.Close() }() // O_PATH
	// The link must not change between the check and the read.
	link, err := os.OpenFile(below(dir, path[strings.LastIndexByte(path, '/')+1:]), unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = link.Close() }() // O_PATH
	info, err := link.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return "", errNoLink
	}
	in, err := describe(dir)
	if err != nil {
		return "", err
	}
	if in.letsIn(info) {
		return "", errStrangersLink
	}
	return textOf(int(link.Fd()))
}

// textOf returns the target of the symbolic link fd.
func textOf(fd int) (string, error) {
	var to [unix.PathMax]byte
	n := 0
	err := again(func() (err error) {
		n, err = unix.Readlinkat(fd, "", to[:])
		return err
	})
	if err != nil {
		return "", err
	}
	return string(to[:n]), nil
}
