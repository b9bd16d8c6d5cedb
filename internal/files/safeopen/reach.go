package safeopen

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/answer"
)

// disks are the file systems whose files are in the memory or on a disk of this
// machine, and keep nobody waiting, by their numbers in statfs(2). All others may: those
// of a network, those of FUSE even if they are of a disk (ntfs-3g) and have its device
// number, and overlayfs, whose layers may be of any kind.
var disks = []int64{
	unix.BTRFS_SUPER_MAGIC,
	unix.EROFS_SUPER_MAGIC_V1,
	unix.EXFAT_SUPER_MAGIC,
	unix.EXT4_SUPER_MAGIC, // and ext2, and ext3
	unix.F2FS_SUPER_MAGIC,
	unix.HUGETLBFS_MAGIC,
	unix.ISOFS_SUPER_MAGIC,
	unix.MSDOS_SUPER_MAGIC,
	unix.NILFS_SUPER_MAGIC,
	unix.RAMFS_MAGIC,
	unix.SQUASHFS_MAGIC,
	unix.TMPFS_MAGIC,
	unix.UDF_SUPER_MAGIC,
	unix.XFS_SUPER_MAGIC,
	bcachefsMagic,
	zfsMagic,
}

const (
	bcachefsMagic = 0xca451a4e // BCACHEFS_SUPER_MAGIC of linux/magic.h
	zfsMagic      = 0x2fc12fc1 // ZFS_SUPER_MAGIC of OpenZFS
)

// standing says what may become of who asks a file system.
type standing uint8

const (
	// onDisk: it is answered.
	onDisk standing = iota
	// elsewhere: it may wait, until it is killed.
	elsewhere
	// remote: not even that ends the waiting, so a helper asks.
	remote
)

// Look returns what fstat(2) tells of fd, a descriptor of [Path] or [At], having told v
// whose it is.
func Look(v *answer.Visit, fd int) (st unix.Stat_t, err error) {
	on, err := reach(v, fd)
	if err != nil {
		return st, err
	}
	return look(fd, on)
}

// look is fstat(2) of a descriptor on a file system of the given standing.
func look(fd int, on standing) (st unix.Stat_t, err error) {
	if on != remote {
		err = os.NewSyscallError("fstat", unix.Fstat(fd, &st))
		return st, err
	}
	body, _, err := remotely(request{Op: opStat}, fd, "")
	if err == nil && len(body) != int(unsafe.Sizeof(st)) {
		err = unix.EIO
	}
	if err != nil {
		return st, os.NewSyscallError("fstat", err)
	}
	return *(*unix.Stat_t)(unsafe.Pointer(&body[0])), nil
}

// reach tells v that what comes now is asked of the file system that fd lies on, unless
// that keeps nobody waiting: then what keeps one waiting lies further on. It returns
// the file system's standing.
func reach(v *answer.Visit, fd int) (on standing, err error) {
	// Neither FUSE nor the file systems of networks ask anybody for the device number.
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return 0, os.NewSyscallError("statx", err)
	}
	device := unix.Mkdev(st.Dev_major, st.Dev_minor)
	if err := v.Reach(answer.Place{Device: device}); err != nil {
		return 0, err
	}
	if on, err = devices.standing(fd, device); err != nil {
		return 0, err
	}
	if on == onDisk {
		v.Leave()
	}
	return on, nil
}
