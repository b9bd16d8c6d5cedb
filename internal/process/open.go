package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/answer"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
)

// near is what stands for whatever a process sees, as long as it is not known on which
// file system it lies.
func near(pid int) answer.Place { return answer.Place{Near: procfs.Path(pid, "root")} }

// source is where a mapped file can be had from: a process, the mapping in
// it, and the process's parent, which often lives longer.
type source struct {
	pid, parent  int
	start, limit uint64
}

// opened is a file that is open.
type opened struct {
	file *safeopen.File // nil if it could not be opened, or was closed to save descriptors
	size int64
	// modified is when it was written last, by its own file system's clock.
	modified unix.Timespec
	gen      uint64 // the inode's generation, 0 where unknown
}

// What it takes to look into other users' processes: at the links to what they mapped, in
// a directory that is the user's alone, and at their roots; and to read what they mapped.
// What a path below a root leads to is opened without: a process can choose the path, and
// on some file systems also seem to have mapped what is there.
var (
	toReachMapped = capability.SetOf(capability.SysPtrace, capability.CheckpointRestore, capability.DACReadSearch)
	toReachRoot   = capability.SetOf(capability.SysPtrace)
	toRead        = capability.SetOf(capability.DACReadSearch)
)

// open opens the file with the given identity.
// It tries, in this order: the process's mapping itself, which leads to the
// right file whatever became of its path; the path as the process sees it,
// then as its parent does; and the path in our own mount namespace.
func (s source) open(v *answer.Visit, key FileKey, path string) (opened, error) {
	attempts := []attempt{
		{func() (int, error) {
			return openInProcess(s.pid, func(id int) (int, error) {
				return safeopen.Path(procfs.Path(id, "map_files", fmt.Sprintf("%x-%x", s.start, s.limit)), toReachMapped)
			})
		}, toRead},
		{func() (int, error) { return openInRoot(v, s.pid, path) }, safeopen.AsUser},
		{func() (int, error) { return openInRoot(v, s.parent, path) }, safeopen.AsUser},
		{func() (int, error) { return safeopen.Below(v, "/", path) }, safeopen.AsUser},
	}
	result := ErrFileGone
	for _, attempt := range attempts {
		o, err := openChecked(v, attempt, key, path)
		switch {
		case err == nil:
			return o, nil
		case errors.Is(err, fs.ErrPermission):
			// The remedy is the user's, so this is the error to show.
			result = fmt.Errorf("%w: needs root, or CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH", err)
		case errors.Is(err, answer.ErrNone) && !errors.Is(result, fs.ErrPermission):
			result = err
		case errors.Is(err, ErrFileReplaced) && errors.Is(result, ErrFileGone):
			result = ErrFileReplaced
		}
	}
	return opened{}, result
}

// Open returns the regular file at a path as process pid sees it: the one that a
// mapping of it will have.
func (t *Table) Open(pid int, path string) (*File, error) {
	key, err := answer.AskPatiently(t.files.patience, near(pid), func(v *answer.Visit) (FileKey, error) {
		fd, err := openInRoot(v, pid, path)
		if err != nil {
			return FileKey{}, err
		}
		defer func() { _ = unix.Close(fd) }()
		st, err := safeopen.Look(v, fd)
		if err != nil {
			return FileKey{}, fmt.Errorf("stat %s: %w", path, err)
		}
		return FileKey{Maj: unix.Major(st.Dev), Min: unix.Minor(st.Dev), Ino: st.Ino}, safeopen.Regular(&st)
	}, func(FileKey, error) {}) // O_PATH
	switch {
	case errors.Is(err, answer.ErrNone):
		return nil, fmt.Errorf("open %s: %w", path, err)
	case err != nil:
		return nil, err
	}
	f := t.files.intern(key, path, source{pid: pid})
	t.files.openQueued()
	return f, nil
}

// root returns the directory that stands for "/" where the file with the given
// identity was mapped from: that of the process or its parent while they live,
// or ours if the path leads to the file there. It is empty if neither is known.
func (s source) root(v *answer.Visit, key FileKey, path string) string {
	for _, pid := range []int{s.pid, s.parent} {
		if pid <= 0 {
			continue
		}
		root := ""
		fd, err := openInProcess(pid, func(id int) (int, error) {
			root = procfs.Path(id, "root")
			return safeopen.Path(root, toReachRoot)
		})
		if err == nil {
			_ = unix.Close(fd) // O_PATH
			return root
		}
	}
	fd, err := safeopen.Below(v, "/", path)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }() // likewise
	if st, err := safeopen.Look(v, fd); err != nil || !sameFile(st, key) {
		return ""
	}
	return "/"
}

// attempt is a way to find a file, and the capabilities to open it with.
type attempt struct {
	find   func() (int, error)
	rights capability.Set
}

// openChecked opens the file that an attempt finds, at path in one place or another,
// if it is the one with the given identity. What is at a path may be anything, so
// it is looked at before it is opened.
func openChecked(v *answer.Visit, a attempt, key FileKey, path string) (opened, error) {
	fd, err := a.find()
	if err != nil {
		return opened{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	var o opened
	o.file, err = safeopen.Hold(v, fd, path, a.rights, func(st *unix.Stat_t) error {
		if safeopen.Regular(st) != nil || !sameFile(*st, key) {
			return ErrFileReplaced
		}
		o.size, o.modified = st.Size, st.Mtim
		return nil
	})
	if err != nil {
		return opened{}, err
	}
	var ok bool
	if o.gen, ok = generation(o.file.OS()); ok && key.Gen != 0 && o.gen != key.Gen {
		_ = o.file.Close() // was not even read
		return opened{}, ErrFileReplaced
	}
	return o, nil
}

// sameFile compares what stat says with the identity that a mapping shows.
//
// Their device numbers may differ although the file is the same: mappings
// show that of the file system's superblock (on overlayfs that of the layer
// below), while stat on btrfs shows one made up for the subvolume and on
// overlayfs one of the mount. Such made-up devices have major number 0, so
// with one of those, the inode alone decides.
func sameFile(st unix.Stat_t, key FileKey) bool {
	if st.Ino != key.Ino {
		return false
	}
	maj := unix.Major(st.Dev)
	return maj == 0 || maj == key.Maj && unix.Minor(st.Dev) == key.Min
}

// openInProcess opens what open finds in the directory of process pid, or of
// a thread that outlived its first one.
func openInProcess(pid int, open func(id int) (int, error)) (int, error) {
	fd, err := open(pid)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		if tid := survivor(pid); tid != 0 && tid != pid {
			return open(tid)
		}
	}
	return fd, err
}

// openInRoot opens a path as process pid sees it, only to look at it. Links
// on the way cannot lead out of the process's root.
func openInRoot(v *answer.Visit, pid int, path string) (int, error) {
	if pid <= 0 || !filepath.IsAbs(path) {
		return -1, fs.ErrNotExist
	}
	root, err := rootOf(pid)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(root) }()
	return safeopen.At(v, root, path)
}

// rootOf opens the root of process pid, or ours if pid is 0, only to look at it.
func rootOf(pid int) (int, error) {
	if pid == 0 {
		return safeopen.Path("/", safeopen.AsUser)
	}
	return openInProcess(pid, func(id int) (int, error) { return safeopen.Path(procfs.Path(id, "root"), toReachRoot) })
}

// generation returns the generation number of the file's inode, by which two
// files that had the same inode number one after the other differ. Not all
// file systems tell it, and what was only looked at (O_PATH) tells none.
func generation(f *os.File) (uint64, bool) {
	const fsIocGetVersion = 0x80087601 // FS_IOC_GETVERSION of 64-bit machines
	gen, err := unix.IoctlGetInt(int(f.Fd()), fsIocGetVersion)
	return uint64(uint32(gen)), err == nil && gen != 0
}
