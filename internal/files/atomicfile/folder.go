package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Why an output is refused for what somebody else put in its place.
var (
	errStrangersFile = errors.New("it is another user's file, in a folder where only its owner can replace it: choose another name")
	errStrangersPipe = errors.New("it is another user's pipe or device, in a folder that others can write to: choose another name")
	errStrangersLink = errors.New("it is another user's symbolic link, in a folder that others can write to: choose another name")
	errReplaced      = errors.New("it was replaced by something else just now")
)

// folder is a directory, as stat(2) tells of it: what is in it may be of whoever can write
// to it. The kernel's sysctls fs.protected_symlinks and others of that kind ask the same
// of the folders that have the sticky bit, if they are set.
type folder struct{ stat syscall.Stat_t }

// folderOf returns the folder that path lies in. That there is none is for others to say.
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

// letsIn reports whether somebody other than we and the folder's owner, who can do
// anything in it, may have put a file there.
func (f folder) letsIn(file fs.FileInfo) bool {
	const others = unix.S_IWGRP | unix.S_IWOTH
	owner := file.Sys().(*syscall.Stat_t).Uid
	return f.stat.Mode&others != 0 && int(owner) != os.Geteuid() && owner != f.stat.Uid
}

// keeps reports whether a file of somebody else cannot be replaced by us.
func (f folder) keeps(file fs.FileInfo) bool {
	us := os.Geteuid()
	return f.stat.Mode&unix.S_ISVTX != 0 && us != 0 && us != int(f.stat.Uid) && us != int(file.Sys().(*syscall.Stat_t).Uid)
}

// errNoLink is what [readLink] returns for what is no symbolic link.
var errNoLink = errors.New("no symbolic link")

// readLink returns where a symbolic link leads to, unless somebody else put it there.
func readLink(path string) (string, error) {
	// What is looked at and what is read has to be the same link.
	link, err := os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = link.Close() }() // was only looked at
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
