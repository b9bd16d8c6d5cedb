package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reasons to reject an output path that another user prepared.
var (
	errStrangersFile = errors.New("it is another user's file, in a folder where only its owner can replace it: choose another name")
	errStrangersPipe = errors.New("it is another user's pipe or device, in a folder that others can write to: choose another name")
	errStrangersLink = errors.New("it is another user's symbolic link, in a folder that others can write to: choose another name")
	errReplaced      = errors.New("it was replaced by something else just now")
)

// folder describes a directory by stat(2): anyone who can write to it may own its
// entries. The sysctls fs.protected_symlinks and its relatives apply the same checks to
// sticky directories, where they are enabled.
type folder struct{ stat syscall.Stat_t }

// folderOf returns the directory that contains path. It is up to the caller to report
// that it does not exist.
func folderOf(path string) (f folder, err error) {
	info, err := os.Stat(directory(path))
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	return folder{*info.Sys().(*syscall.Stat_t)}, nil
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
	// The link must not change between the check and the read.
	link, err := os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
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
	in, err := folderOf(path)
	if err != nil {
		return "", err
	}
	if in.letsIn(info) {
		return "", errStrangersLink
	}
	var to [unix.PathMax]byte
	n, err := unix.Readlinkat(int(link.Fd()), "", to[:])
	if err != nil {
		return "", err
	}
	return string(to[:n]), nil
}
