package safeopen

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// disks lists the statfs(2) types of file systems that are in memory or on a local disk
// and so respond promptly. All others may block: network file systems, FUSE (even if it
// has the device number of a disk, as ntfs-3g does), and overlayfs, whose layers may be
// anything.
var disks = []int64{
	unix.BTRFS_SUPER_MAGIC,
	unix.EROFS_SUPER_MAGIC_V1,
	unix.EXFAT_SUPER_MAGIC,
	unix.EXT4_SUPER_MAGIC, // also ext2 and ext3
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

// standing classifies file systems by how an access to them may block.
type standing uint8

const (
	// onDisk: it responds.
	onDisk standing = iota
	// elsewhere: it may block until the process is killed.
	elsewhere
	// remote: it may block even a killed process, so a helper process accesses it.
	remote
)

// Look returns the fstat(2) of fd, an O_PATH descriptor, after reporting its file system
// to v.
func Look(v *Visit, fd int) (st unix.Stat_t, err error) {
	on, err := reach(v, fd)
	if err != nil {
		return st, err
	}
	return look(fd, on)
}

// look calls fstat(2) for a descriptor on a file system of the given standing.
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

// reach reports to v that the next access goes to the file system of fd, unless it is on
// disk. It returns the file system's standing.
func reach(v *Visit, fd int) (on standing, err error) {
	// Neither FUSE nor network file systems ask a server for the device number.
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return 0, os.NewSyscallError("statx", err)
	}
	device := unix.Mkdev(st.Dev_major, st.Dev_minor)
	if err := v.Reach(Place{Device: device}); err != nil {
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
