package process

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
)

// procRoot stands in for the file system of a process's files as long as that is unknown.
func procRoot(pid int) safeopen.Backend { return safeopen.Backend{Path: procfs.Path(pid, "root")} }

// origin is where a mapped file can be opened from: a process, its mapping, and the
// process's parent, which often outlives it.
type origin struct {
	pid, parent  int
	start, limit uint64
}

// opened is an open file.
type opened struct {
	file *safeopen.File // nil if opening failed or it was closed to save descriptors
	size int64
	// modified is the file's mtime, on its file system's clock.
	modified unix.Timespec
	gen      uint64 // the inode's generation, 0 if unknown
}

// Capabilities for inspecting other users' processes: following the links to their mapped
// files, which are in a directory that only their user can enter, following their roots, and
// reading what they mapped. Files found by a path below a root are opened without
// capabilities: the process can choose the path, and on some file systems it can pretend to
// have mapped the file there.
var (
	toReachMapped = capability.SetOf(capability.SysPtrace, capability.CheckpointRestore, capability.DACReadSearch)
	toReachRoot   = capability.SetOf(capability.SysPtrace)
	toRead        = capability.SetOf(capability.DACReadSearch)
)

// open opens the file with the given identity. It tries in this order: the process's
// mapping itself, which leads to the right file regardless of its path; the path in the
// root of the process, then of its parent; and the path in our own mount namespace.
func (from origin) open(r *safeopen.Request, key FileKey, path string) (opened, error) {
	attempts := []attempt{
		{func() (int, error) {
			return procfs.Through(from.pid, func(id int) (int, error) {
				return safeopen.Path(procfs.Path(id, "map_files", fmt.Sprintf("%x-%x", from.start, from.limit)), toReachMapped)
			})
		}, toRead},
		{func() (int, error) { return openInRoot(r, from.pid, path) }, safeopen.AsUser},
		{func() (int, error) { return openInRoot(r, from.parent, path) }, safeopen.AsUser},
		{func() (int, error) { return safeopen.Below(r, "/", path) }, safeopen.AsUser},
	}
	result := ErrFileGone
	for _, attempt := range attempts {
		o, err := openChecked(r, attempt, key, path)
		switch {
		case err == nil:
			return o, nil
		case errors.Is(err, fs.ErrPermission):
			// The user can fix this one, so this is the error to show.
			result = fmt.Errorf("%w: needs root, or CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH", err)
		case errors.Is(err, safeopen.ErrNoAnswer) && !errors.Is(result, fs.ErrPermission):
			result = err
		case errors.Is(err, ErrFileReplaced) && errors.Is(result, ErrFileGone):
			result = ErrFileReplaced
		}
	}
	return opened{}, result
}

// Open returns the regular file at a path as process pid sees it. A mapping of that file
// will have the same File, so Open gives it the path that the kernel gives mappings: without
// symbolic links.
func (t *Table) Open(pid int, path string) (*File, error) {
	type found struct {
		key  FileKey
		path string
	}
	file, err := safeopen.Ask(t.files.budget, procRoot(pid), func(r *safeopen.Request) (found, error) {
		fd, err := openInRoot(r, pid, path)
		if err != nil {
			return found{}, err
		}
		defer func() { _ = unix.Close(fd) }()
		st, err := safeopen.Look(r, fd)
		if err != nil {
			return found{}, fmt.Errorf("stat %s: %w", path, err)
		}
		key := FileKey{Maj: unix.Major(st.Dev), Min: unix.Minor(st.Dev), Ino: st.Ino}
		return found{key, mappedPath(pid, fd, path)}, safeopen.Regular(&st)
	})
	switch {
	case errors.Is(err, safeopen.ErrNoAnswer):
		return nil, fmt.Errorf("open %s: %w", path, err)
	case err != nil:
		return nil, err
	}
	f := t.files.intern(file.key, file.path, origin{pid: pid})
	t.files.openQueued()
	return f, nil
}

// OpenPath returns the regular files that process pid has at a path: those that it maps by that
// name, which an upgrade may have replaced or removed since, and the one that is there now. If its
// root has none at the path, as after chroot(2), a file that it maps is also found by its path
// here. The name of each is its path as the process sees it, without links. The caller closes the
// files. If only some can be opened, it also returns the others.
func OpenPath(pid int, path string) ([]*safeopen.File, []Unopened, error) {
	all, err := safeopen.Ask(nil, procRoot(pid), func(r *safeopen.Request) (versions, error) { return openPath(r, pid, path) })
	if errors.Is(err, safeopen.ErrNoAnswer) {
		err = fmt.Errorf("open %s: %w", path, err)
	}
	return all.files, all.unopened, err
}

// versions are the files that a process has at a path.
type versions struct {
	files    []*safeopen.File
	unopened []Unopened
}

// Unopened is a file that cannot be opened.
type Unopened struct {
	// Name is the path as the process sees it, and for a mapped file the address.
	Name string
	Err  error
}

// Root returns the directory that process pid sees as its root, also if its first thread has ended.
func Root(pid int) string {
	if tid := procfs.Survivor(pid); tid != 0 {
		pid = tid
	}
	return procfs.Path(pid, "root")
}

// Close closes the files.
func (v versions) Close() error {
	for _, f := range v.files {
		_ = f.Close() // nothing was written
	}
	return nil
}

// maxMappedAs bounds the files of one name that a process maps, each of which takes a descriptor: a
// few after upgrades.
const maxMappedAs = 64

// openPath is [OpenPath] but may block.
func openPath(r *safeopen.Request, pid int, path string) (all versions, err error) {
	defer func() {
		if err != nil {
			_ = all.Close()
			all = versions{}
		}
	}()
	var there unix.Stat_t
	names := []string{path}
	if dir, err := openInRoot(r, pid, filepath.Dir(path)); err == nil { // the path may lead through links
		names = append(names, filepath.Join(mappedPath(pid, dir, filepath.Dir(path)), filepath.Base(path)))
		_ = unix.Close(dir) // O_PATH
	}
	fd, missing := openInRoot(r, pid, path)
	if missing == nil {
		defer func() { _ = unix.Close(fd) }() // likewise
		name := mappedPath(pid, fd, path)
		f, err := safeopen.Hold(r, fd, name, safeopen.AsUser, func(st *unix.Stat_t) error {
			there = *st
			return safeopen.Regular(st)
		})
		if err != nil {
			all.unopened = append(all.unopened, Unopened{name, cmp.Or(errors.Unwrap(err), err)})
		} else {
			all.files = append(all.files, f)
		}
		names = append(names, name)
	} else if fd, err := safeopen.Below(r, "/", path); err == nil {
		names = append(names, mappedPath(pid, fd, path))
		_ = unix.Close(fd) // likewise
	}
	maps, err := ReadMaps(pid)
	if err != nil && len(all.files) > 0 {
		return all, nil // it will map the one that is there
	}
	mapped := mappedAs(maps, names)
	if len(mapped) > maxMappedAs {
		return all, fmt.Errorf("open %s: process %d maps %d files of that name, more than programs do", path, pid, len(mapped))
	}
	for key, m := range mapped {
		if missing == nil && sameFile(there, key) {
			continue
		}
		o, err := origin{pid: pid, start: m.Start, limit: m.Limit}.open(r, key, strings.TrimSuffix(m.Name, deletedSuffix))
		if err != nil {
			name := fmt.Sprintf("%s, which process %d maps at 0x%x", strings.TrimSuffix(m.Name, deletedSuffix), pid, m.Start)
			all.unopened = append(all.unopened, Unopened{name, err})
			continue
		}
		all.files = append(all.files, o.file)
	}
	switch {
	case len(all.files) > 0:
		return all, nil
	case len(all.unopened) > 0:
		return all, fmt.Errorf("%s: %w", all.unopened[0].Name, all.unopened[0].Err)
	}
	return all, missing
}

// mappedAs returns a mapping of each file that has one of the names.
func mappedAs(maps []procfs.Map, names []string) map[FileKey]procfs.Map {
	found := map[FileKey]procfs.Map{}
	for _, m := range maps {
		if m.Ino != 0 && slices.Contains(names, strings.TrimSuffix(m.Name, deletedSuffix)) {
			found[FileKey{Maj: m.Maj, Min: m.Min, Ino: m.Ino}] = m
		}
	}
	return found
}

// root returns the root directory from which the file was mapped: the root of the process
// or its parent while they live, or ours if the path leads to the file there. It is empty
// if neither is known. A root that is ours, or that of the first process, gets this name, which
// outlives the process.
func (from origin) root(r *safeopen.Request, key FileKey, path string) string {
	for _, pid := range []int{from.pid, from.parent} {
		if pid <= 0 {
			continue
		}
		root := ""
		fd, err := procfs.Through(pid, func(id int) (int, error) {
			root = procfs.Path(id, "root")
			return safeopen.Path(root, toReachRoot)
		})
		if err == nil {
			root = lastingRoot(fd, root)
			_ = unix.Close(fd) // O_PATH
			return root
		}
	}
	fd, err := safeopen.Below(r, "/", path)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }() // O_PATH
	if st, err := safeopen.Look(r, fd); err != nil || !sameFile(st, key) {
		return ""
	}
	return "/"
}

// lastingRoot returns "/" or the root of the first process, if fd, an O_PATH descriptor, is that directory
// in the same mount namespace, else root.
func lastingRoot(fd int, root string) string {
	this, ok := mountedAt(fd)
	if !ok {
		return root
	}
	for _, name := range []string{"/", procfs.Path(1, "root")} {
		other, err := safeopen.Path(name, toReachRoot)
		if err != nil {
			continue
		}
		place, ok := mountedAt(other)
		_ = unix.Close(other) // O_PATH
		if ok && place == this {
			return name
		}
	}
	return root
}

// place is a directory of a mount. Each mount namespace has mounts of its own.
type place struct{ mount, inode uint64 }

// mountedAt returns the place of fd, an O_PATH descriptor, without asking its file system.
func mountedAt(fd int) (place, bool) {
	var st unix.Statx_t
	const wanted = unix.STATX_MNT_ID | unix.STATX_INO
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, wanted, &st)
	return place{st.Mnt_id, st.Ino}, err == nil && st.Mask&wanted == wanted
}

// attempt is a way to find a file, and the capabilities to open it with.
type attempt struct {
	find   func() (int, error)
	rights capability.Set
}

// openChecked opens the file that an attempt finds at path, if it is the one with the
// given identity. There may be anything at the path, so it is checked before it is
// opened.
func openChecked(r *safeopen.Request, a attempt, key FileKey, path string) (opened, error) {
	fd, err := a.find()
	if err != nil {
		return opened{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	var o opened
	o.file, err = safeopen.Hold(r, fd, path, a.rights, func(st *unix.Stat_t) error {
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
		_ = o.file.Close() // nothing was read from it
		return opened{}, ErrFileReplaced
	}
	return o, nil
}

// sameFile compares the result of stat(2) with the identity shown by a mapping.
//
// The device numbers of the same file may differ: mappings show the superblock's (on
// overlayfs, the lower layer's), while stat shows a made-up number of the subvolume on
// btrfs and of the mount on overlayfs. Such numbers have major number 0. If either has,
// only the inode decides.
func sameFile(st unix.Stat_t, key FileKey) bool {
	if st.Ino != key.Ino {
		return false
	}
	maj := unix.Major(st.Dev)
	return maj == 0 || maj == key.Maj && unix.Minor(st.Dev) == key.Min
}

// openInRoot opens a path as process pid sees it, as an O_PATH descriptor. Links cannot
// lead out of the process's root.
func openInRoot(r *safeopen.Request, pid int, path string) (int, error) {
	if pid <= 0 || !filepath.IsAbs(path) {
		return -1, fs.ErrNotExist
	}
	root, err := rootOf(pid)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(root) }()
	return safeopen.At(r, root, path)
}

// mappedPath returns the path of an open file as process pid sees it.
func mappedPath(pid, fd int, path string) string {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return path
	}
	return strings.TrimSuffix(belowRoot(pid)(name), deletedSuffix)
}

// belowRoot returns a function that makes the names of files that /proc shows, as this process
// sees them, into those that process pid sees. They differ in a chroot. Files outside of it keep
// their names.
func belowRoot(pid int) func(name string) string {
	root, err := procfs.Readlink(pid, "root")
	if err != nil || root == "/" {
		return func(name string) string { return name }
	}
	return func(name string) string {
		if below, found := strings.CutPrefix(name, root+"/"); found {
			return "/" + below
		}
		return name
	}
}

// rootOf opens the root of process pid, or ours if pid is 0, as an O_PATH descriptor.
func rootOf(pid int) (int, error) {
	if pid == 0 {
		return safeopen.Path("/", safeopen.AsUser)
	}
	return procfs.Through(pid, func(id int) (int, error) { return safeopen.Path(procfs.Path(id, "root"), toReachRoot) })
}

// generation returns the generation number of the file's inode, which distinguishes files
// that used the same inode number at different times. Not all file systems support it,
// and O_PATH descriptors do not.
func generation(f *os.File) (uint64, bool) {
	const fsIocGetVersion = 0x80087601 // FS_IOC_GETVERSION on 64-bit machines
	gen, err := unix.IoctlGetInt(int(f.Fd()), fsIocGetVersion)
	return uint64(uint32(gen)), err == nil && gen != 0
}
