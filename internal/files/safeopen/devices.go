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

// devices caches the standing of file systems by device number.
var devices = &deviceTable{}

// deviceTable knows the file systems mounted here from /proc/self/mountinfo. Other mount
// namespaces and btrfs subvolumes have to be asked. The kernel's
// internal tmpfs, which backs memfd_create(2), is known though it is not mounted.
type deviceTable struct {
	mu      sync.Mutex
	mounts  *os.File        // /proc/self/mountinfo; nil before the first use
	mounted map[uint64]bool // device number to whether it is FUSE
	memory  uint64          // the device number of the kernel's internal tmpfs; 0 if unknown
	// asked caches the file systems that were asked for their type.
	asked map[uint64]askedDevice
}

// askedDevice is the answer of a file system. It holds a descriptor until askAgain has
// passed, so that the device number is not reused.
type askedDevice struct {
	on    standing
	holds int
	until time.Time
}

// askAgain is the time for which an answer is cached. The file system cannot be unmounted
// in the meantime.
const askAgain = time.Second

// standing returns the standing of the file system of fd, whose device number is device.
func (t *deviceTable) standing(fd int, device uint64) (standing, error) {
	t.mu.Lock()
	isFUSE, mounted := t.isFUSE(device)
	asked, known := t.asked[device]
	t.mu.Unlock()
	switch {
	case mounted && isFUSE:
		return remote, nil
	case mounted:
		var fs unix.Statfs_t
		_ = unix.Fstatfs(fd, &fs) // the type 0 of an error is none that responds for sure
		return classify(fs.Type), nil
	case known:
		return asked.on, nil
	}
	body, _, err := remotely(request{Op: opType}, fd, "")
	if errno := unix.Errno(0); err != nil && !errors.As(err, &errno) {
		if errors.Is(err, ErrNoAnswer) {
			return remote, err
		}
		return elsewhere, nil // keep working without helpers
	}
	on := remote // it failed like FUSE without its daemon
	if err == nil && len(body) == 8 {
		on = classify(int64(binary.NativeEndian.Uint64(body)))
	}
	t.keep(fd, device, on)
	return on, nil
}

// classify returns the standing of a file system of a statfs(2) type, as mounted here or in
// another mount namespace.
func classify(fsType int64) standing {
	switch {
	case slices.Contains(disks, fsType):
		return onDisk
	case fsType == unix.FUSE_SUPER_MAGIC:
		return remote
	}
	return elsewhere
}

// keep caches the standing of a file system.
func (t *deviceTable) keep(fd int, device uint64, on standing) {
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
		t.asked = map[uint64]askedDevice{}
	}
	t.asked[device] = askedDevice{on, holds, time.Now().Add(askAgain)}
	time.AfterFunc(askAgain, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.asked, device)
		_ = unix.Close(holds) // O_PATH
	})
}

// isFUSE reports whether a file system is FUSE, and whether it is mounted here.
func (t *deviceTable) isFUSE(device uint64) (isFUSE, mounted bool) {
	if t.mounts == nil {
		var err error
		if t.mounts, err = os.Open("/proc/self/mountinfo"); err != nil {
			return false, false
		}
		t.memory = memoryDevice()
	} else {
		// POLLPRI reports a change of the mounts since the last poll, see
		// proc_pid_mounts(5).
		changed := []unix.PollFd{{Fd: int32(t.mounts.Fd()), Events: unix.POLLPRI}}
		if n, err := unix.Poll(changed, 0); err == nil && n == 0 {
			isFUSE, mounted = t.mounted[device]
			return isFUSE, mounted
		}
	}
	t.mounted = map[uint64]bool{}
	mounts, _ := procfs.Mounts() // without, helpers are asked
	for _, m := range mounts {
		t.mounted[unix.Mkdev(uint32(m.Major), uint32(m.Minor))] = fuseType(m.FSType)
	}
	if t.memory != 0 {
		t.mounted[t.memory] = false
	}
	isFUSE, mounted = t.mounted[device]
	return isFUSE, mounted
}

// memoryDevice returns the device number of the kernel's internal tmpfs, or 0. All
// memfd_create(2) files without huge pages, System V shared memory and shared anonymous
// mappings have this device number, in all mount namespaces.
func memoryDevice() uint64 {
	fd, err := unix.MemfdCreate("fulgur", unix.MFD_CLOEXEC)
	if err != nil {
		return 0 // seccomp forbids it
	}
	defer func() { _ = unix.Close(fd) }() // it is empty
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0
	}
	return st.Dev
}

// fuseType reports whether file systems of a type, as mountinfo shows it, are of FUSE.
func fuseType(fsType string) bool {
	name, _, _ := strings.Cut(fsType, ".") // the file system's own name follows
	return name == "fuse" || name == "fuseblk" || fsType == "virtiofs"
}
