package safeopen

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/answer"
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

// Look returns what fstat(2) tells of fd, a descriptor of [Path] or [At], having told v
// whose it is.
func Look(v *answer.Visit, fd int) (st unix.Stat_t, err error) {
	if _, err := reach(v, fd); err != nil {
		return st, err
	}
	err = os.NewSyscallError("fstat", unix.Fstat(fd, &st))
	return st, err
}

// reach tells v that what comes now is asked of the file system that fd lies on, unless
// that keeps nobody waiting: then what keeps one waiting lies further on. It reports
// whether it is so.
func reach(v *answer.Visit, fd int) (onDisk bool, err error) {
	// Neither FUSE nor the file systems of networks ask anybody for the device number.
	var device unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &device); err != nil {
		return false, os.NewSyscallError("statx", err)
	}
	if err := v.Reach(answer.Place{Device: unix.Mkdev(device.Dev_major, device.Dev_minor)}); err != nil {
		return false, err
	}
	var on unix.Statfs_t
	onDisk = unix.Fstatfs(fd, &on) == nil && slices.Contains(disks, on.Type) // FUSE need not tell
	if onDisk {
		v.Leave()
	}
	return onDisk, nil
}
