package safeopen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/answer"
)

// devices knows the file systems' standing by their device numbers, without asking them.
var devices = &deviceTable{}

// deviceTable knows of what is mounted here from /proc/self/mountinfo. Others, as those
// of other mount namespaces and the subvolumes of btrfs, have to be asked. The kernel's
// own tmpfs, where memfd_create(2) has its files, is known though nobody can mount it.
type deviceTable struct {
	mu      sync.Mutex
	mounts  *os.File        // /proc/self/mountinfo; nil before the first question
	mounted map[uint64]bool // whether it is of FUSE
	memory  uint64          // the device number of the kernel's own tmpfs; 0 if not known
	// asked are those that were asked for their type.
	asked map[uint64]askedDevice
}

// askedDevice is a file system that was asked. A descriptor holds it until then, so that
// its device number is no other's.
type askedDevice struct {
	on    standing
	holds int
	until time.Time
}

// askAgain is for how long it is held: nobody can unmount it meanwhile.
const askAgain = time.Second

// standing returns that of the file system of fd, which has the given device number.
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
		if err := unix.Fstatfs(fd, &fs); err == nil && slices.Contains(disks, fs.Type) {
			return onDisk, nil
		}
		return elsewhere, nil
	case known:
		return asked.on, nil
	}
	body, _, err := remotely(request{Op: opType}, fd, "")
	if errno := unix.Errno(0); err != nil && !errors.As(err, &errno) {
		if errors.Is(err, answer.ErrNone) {
			return remote, err
		}
		return elsewhere, nil // a machine without helpers still has files
	}
	on := remote // FUSE need not tell
	if err == nil && len(body) == 8 && slices.Contains(disks, int64(binary.NativeEndian.Uint64(body))) {
		on = onDisk
	}
	t.keep(fd, device, on)
	return on, nil
}

// keep remembers what a file system answered.
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
		_ = unix.Close(holds) // was only looked at
	})
}

// isFUSE reports whether a file system is of FUSE, and whether it is mounted here.
func (t *deviceTable) isFUSE(device uint64) (isFUSE, mounted bool) {
	if t.mounts == nil {
		var err error
		if t.mounts, err = os.Open("/proc/self/mountinfo"); err != nil {
			return false, false
		}
		t.memory = memoryDevice()
	} else {
		// POLLPRI says that mounts came or went since the last poll, see proc_pid_mounts(5).
		changed := []unix.PollFd{{Fd: int32(t.mounts.Fd()), Events: unix.POLLPRI}}
		if n, err := unix.Poll(changed, 0); err == nil && n == 0 {
			isFUSE, mounted = t.mounted[device]
			return isFUSE, mounted
		}
	}
	t.mounted = map[uint64]bool{}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		t.mounted = fuseByDevice(b)
	}
	if t.memory != 0 {
		t.mounted[t.memory] = false
	}
	isFUSE, mounted = t.mounted[device]
	return isFUSE, mounted
}

// memoryDevice returns the device number of the kernel's own tmpfs, or 0. All files of
// memfd_create(2) without huge pages, System V shared memory and shared anonymous
// mappings have it, in all mount namespaces.
func memoryDevice() uint64 {
	fd, err := unix.MemfdCreate("fulgur", unix.MFD_CLOEXEC)
	if err != nil {
		return 0 // seccomp forbids it
	}
	defer func() { _ = unix.Close(fd) }() // was only looked at
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0
	}
	return st.Dev
}

// fuseByDevice reads which of the file systems in /proc/PID/mountinfo are of FUSE, see
// proc_pid_mountinfo(5).
func fuseByDevice(mountinfo []byte) map[uint64]bool {
	fuse := map[uint64]bool{}
	for line := range bytes.Lines(mountinfo) {
		before, after, ok := strings.Cut(string(line), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 3 {
			continue
		}
		major, minor, ok := strings.Cut(fields[2], ":")
		ma, errMajor := strconv.ParseUint(major, 10, 32)
		mi, errMinor := strconv.ParseUint(minor, 10, 32)
		if !ok || errMajor != nil || errMinor != nil {
			continue
		}
		device := unix.Mkdev(uint32(ma), uint32(mi))
		kind, _, _ := strings.Cut(after, " ")
		fuse[device] = kind == "fuse" || kind == "fuseblk" || kind == "virtiofs" ||
			strings.HasPrefix(kind, "fuse.") || strings.HasPrefix(kind, "fuseblk.")
	}
	return fuse
}
