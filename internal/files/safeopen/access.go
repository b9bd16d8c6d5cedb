package safeopen

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
)

// access is the way to access a file system.
type access uint8

const (
	// direct: it responds, so there is no time limit.
	direct access = iota
	// timed: it may block until this process is killed.
	timed
	// helped: it may block even a killed process, so a helper process accesses it.
	helped
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
	0xca451a4e, // BCACHEFS_SUPER_MAGIC of linux/magic.h
	0x2fc12fc1, // ZFS_SUPER_MAGIC of OpenZFS
}

// accessTo returns the access to file systems of a statfs(2) type, as mounted here or in
// another mount namespace.
func accessTo(fsType int64) access {
	switch {
	case slices.Contains(disks, fsType):
		return direct
	case fsType == unix.FUSE_SUPER_MAGIC:
		return helped
	}
	return timed
}

// reach reports to r that the next access goes to the file system of fd, unless it has no time
// limit. It returns the access to it.
func reach(r *Request, fd int) (access, error) {
	// Neither FUSE nor network file systems ask a server for the device number.
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return 0, os.NewSyscallError("statx", err)
	}
	device := unix.Mkdev(st.Dev_major, st.Dev_minor)
	if err := r.Enter(Backend{Device: device}); err != nil {
		return 0, err
	}
	on, err := devices.access(fd, device)
	if err == nil && on == direct {
		r.Leave()
	}
	return on, err
}

var devices = &deviceTable{}

// deviceTable knows the file systems mounted here from /proc/self/mountinfo. Other mount
// namespaces and btrfs subvolumes have to be asked. The kernel's
// internal tmpfs, which backs memfd_create(2), is known though it is not mounted.
type deviceTable struct {
	mu      sync.Mutex
	mounts  *os.File        // /proc/self/mountinfo; nil before the first use
	mounted map[uint64]bool // device number to whether it is FUSE
	// asked caches the file systems that were asked for their type.
	asked map[uint64]access
}

// askAgain is the time for which an answer is cached.
const askAgain = time.Second

// access returns the access to the file system of fd, whose device number is device.
func (t *deviceTable) access(fd int, device uint64) (access, error) {
	t.mu.Lock()
	t.update()
	isFUSE, mounted := t.mounted[device]
	on, known := t.asked[device]
	t.mu.Unlock()
	switch {
	case mounted && isFUSE:
		return helped, nil
	case mounted:
		var fs unix.Statfs_t
		_ = unix.Fstatfs(fd, &fs) // the type 0 of an error is none that responds for sure
		return accessTo(fs.Type), nil
	case known:
		return on, nil
	}
	body, err := operation{Code: opType}.by(helped, fd, "", AsUser)
	switch errno := unix.Errno(0); {
	case err == nil && len(body) == 8:
		on = accessTo(int64(binary.NativeEndian.Uint64(body)))
	case err == nil || errors.As(err, &errno):
		on = helped // it failed like FUSE without its daemon
	case errors.Is(err, ErrNoAnswer):
		return helped, err
	default:
		return timed, nil // keep working without helpers
	}
	t.keep(fd, device, on)
	return on, nil
}

// keep caches the access to a file system. It holds a descriptor meanwhile, so that the file system
// stays mounted, and the device number is not reused.
func (t *deviceTable) keep(fd int, device uint64, on access) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.asked[device]; known {
		return
	}
	holds, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return
	}
	if t.asked == nil {
		t.asked = map[uint64]access{}
	}
	t.asked[device] = on
	time.AfterFunc(askAgain, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.asked, device)
		_ = unix.Close(holds) // O_PATH
	})
}

// update reads the mounts if they have changed.
func (t *deviceTable) update() {
	if t.mounts == nil {
		var err error
		if t.mounts, err = os.Open("/proc/self/mountinfo"); err != nil {
			return // helpers are asked
		}
	} else {
		// POLLPRI reports a change of the mounts since the last poll, see
		// proc_pid_mounts(5).
		changed := []unix.PollFd{{Fd: int32(t.mounts.Fd()), Events: unix.POLLPRI}}
		if n, err := unix.Poll(changed, 0); err == nil && n == 0 {
			return
		}
	}
	t.mounted = map[uint64]bool{}
	mounts, _ := procfs.Mounts() // likewise
	for _, m := range mounts {
		t.mounted[unix.Mkdev(uint32(m.Major), uint32(m.Minor))] = fuseType(m.FSType)
	}
	if device, ok := memoryDevice(); ok {
		t.mounted[device] = false
	}
}

// memoryDevice returns the device number of the kernel's internal tmpfs. All
// memfd_create(2) files without huge pages, System V shared memory and shared anonymous
// mappings have this device number, in all mount namespaces.
func memoryDevice() (device uint64, ok bool) {
	fd, err := unix.MemfdCreate("fulgur", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, false // seccomp forbids it
	}
	defer func() { _ = unix.Close(fd) }() // it is empty
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return st.Dev, err == nil
}

// fuseType reports whether file systems of a type, as mountinfo shows it, are of FUSE.
func fuseType(fsType string) bool {
	name, _, _ := strings.Cut(fsType, ".") // the file system's own name follows
	return name == "fuse" || name == "fuseblk" || fsType == "virtiofs"
}
