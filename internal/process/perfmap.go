package process

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
)

// openPerfMap opens the perf map of process pid, a list of the functions that a JIT compiled:
// /tmp/perf-PID.map in the process's root, where PID is the process's own view of its ID, or
// else ours. Open the map while the process lives, because its root and its view of its ID
// vanish with it.
//
// Everyone can write to /tmp, so a map counts only if it is a regular file that belongs
// to the process's user or to root. It is opened with the privileges of fulgur's user,
// unless only the process's user can have put it there. The error wraps fs.ErrNotExist if
// there is no map, and [safeopen.ErrNoAnswer] if a file system on the way does not respond. The
// caller closes the file.
func openPerfMap(budget *safeopen.Budget, pid int) (*safeopen.File, error) {
	return askPerfMap(budget, pid, func(r *safeopen.Request) (*safeopen.File, error) {
		place, err := findPerfMapPlace(pid)
		if err != nil {
			return nil, err
		}
		defer place.close()
		return place.open(r)
	})
}

// askPerfMap calls open for the perf map of process pid within the budget.
func askPerfMap(budget *safeopen.Budget, pid int, open func(*safeopen.Request) (*safeopen.File, error)) (*safeopen.File, error) {
	f, err := safeopen.Ask(budget, procRoot(pid), open)
	if err != nil {
		return nil, fmt.Errorf("open perf map of process %d: %w", pid, err)
	}
	return f.With(budget), nil
}

// perfMapPlace is where the perf map of a process is or will appear. It outlives the
// process: some JITs write their map as their last action.
type perfMapPlace struct {
	pid, nspid int
	uid        uint32   // of the process
	root       *os.File // its root, an O_PATH descriptor
}

// findPerfMapPlace returns the place of process pid, which must be alive. The caller
// closes it.
func findPerfMapPlace(pid int) (*perfMapPlace, error) {
	status, err := procfs.Process(pid).Status()
	if err != nil {
		return nil, err
	}
	root, err := rootOf(pid)
	if err != nil {
		return nil, err
	}
	// A file that the process creates belongs to its file system user.
	return &perfMapPlace{pid, cmp.Or(status.NSPID, pid), status.UIDs[3], os.NewFile(uintptr(root), "/")}, nil
}

// close releases the place.
func (p *perfMapPlace) close() { _ = p.root.Close() } // O_PATH

// open opens the map, see [openPerfMap].
func (p *perfMapPlace) open(r *safeopen.Request) (f *safeopen.File, err error) {
	conn, err := p.root.SyscallConn()
	if err != nil {
		return nil, err
	}
	// Control keeps the descriptor open during the call, even if the place is closed
	// concurrently.
	if err := conn.Control(func(root uintptr) { f, err = openOwned(r, int(root), perfMapPath(p.nspid), p.uid) }); err != nil {
		return nil, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	root, err := rootOf(0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(root) }() // O_PATH
	return openOwned(r, root, perfMapPath(p.pid), p.uid)
}

// perfMapPath returns the conventional path of the perf map of pid.
func perfMapPath(pid int) string { return "/tmp/perf-" + strconv.Itoa(pid) + ".map" }

// openOwned opens the regular file at path below the directory descriptor root, if uid or
// root owns it.
func openOwned(r *safeopen.Request, root int, path string, uid uint32) (*safeopen.File, error) {
	fd, err := safeopen.EntryAt(r, root, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	st, err := safeopen.Look(r, fd)
	if err != nil {
		return nil, err
	}
	rights := rightsOfPerfMap(&st, uid)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		followed, err := safeopen.At(r, root, path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = unix.Close(followed) }()
		fd = followed
	}
	return safeopen.Hold(r, fd, path, rights, func(st *unix.Stat_t) error {
		if st.Uid != uid && st.Uid != 0 {
			return ownerError(st, uid)
		}
		return safeopen.Regular(st)
	})
}

// rightsOfPerfMap returns the capabilities for opening a perf map of user uid. Many JITs
// write maps that only their user may read. But everyone can create links in /tmp, and
// these may lead to other files of that user.
func rightsOfPerfMap(st *unix.Stat_t, uid uint32) capability.Set {
	if safeopen.Regular(st) == nil && st.Uid == uid && st.Nlink == 1 {
		return toRead
	}
	return safeopen.AsUser
}
