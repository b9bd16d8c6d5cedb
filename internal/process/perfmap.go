package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"fulgur/internal/answer"
	"fulgur/internal/safeopen"
)

// openPerfMap opens the perf map of process pid, the file in which a JIT
// names its code: /tmp/perf-PID.map, in the process's root and with the pid
// as the process knows it, else as we do. A process that exited leaves
// neither its root nor its numbers behind, so open the map while it lives.
//
// /tmp is open to everyone, so a map counts only if it is a regular file
// that the process's user, or root, owns. The error wraps fs.ErrNotExist if
// there is none, and [answer.ErrNone] if a file system on the way does not answer. The
// caller closes the file.
func openPerfMap(pid int) (*safeopen.File, error) {
	f, err := answer.Ask(near(pid), func(v *answer.Visit) (*safeopen.File, error) { return visitPerfMap(v, pid) },
		func(late *safeopen.File, err error) {
			if err == nil {
				_ = late.Close() // it is looked for again
			}
		})
	if err != nil {
		return nil, fmt.Errorf("open perf map of process %d: %w", pid, err)
	}
	return f, nil
}

// visitPerfMap is [openPerfMap] for who may wait.
func visitPerfMap(v *answer.Visit, pid int) (*safeopen.File, error) {
	status, err := os.ReadFile(procPath(pid, "status"))
	if err != nil {
		return nil, err
	}
	uid, nspid, err := parseStatus(status)
	if err != nil {
		return nil, err
	}
	f, err := openOwned(v, func(path string) (int, error) { return openInRoot(v, pid, path) }, perfMapPath(nspid), uid)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = openOwned(v, func(path string) (int, error) { return safeopen.Below(v, "/", path) }, perfMapPath(pid), uid)
	}
	return f, err
}

// perfMapPath returns the traditional path of the perf map of pid.
func perfMapPath(pid int) string { return "/tmp/perf-" + strconv.Itoa(pid) + ".map" }

// openOwned opens the regular file that find finds at path if uid or root owns it.
func openOwned(v *answer.Visit, find func(path string) (int, error), path string, uid uint32) (*safeopen.File, error) {
	fd, err := find(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	return safeopen.Hold(v, fd, path, func(st *unix.Stat_t) error {
		if st.Uid != uid && st.Uid != 0 {
			return fmt.Errorf("owned by user %d, neither by the process's user %d nor by root", st.Uid, uid)
		}
		return safeopen.Regular(st)
	})
}

// parseStatus returns the user that owns the files a process creates, and
// the process's pid in its innermost pid namespace, from its
// /proc/PID/status, see proc_pid_status(5).
func parseStatus(status []byte) (uid uint32, nspid int, err error) {
	// Uid: real, effective, saved, file system. NSpid: outermost to innermost.
	uids, pids := statusFields(status, "Uid:"), statusFields(status, "NSpid:")
	if len(uids) != 4 || len(pids) == 0 {
		return 0, 0, errors.New("status file without Uid and NSpid")
	}
	u, err := strconv.ParseUint(string(uids[3]), 10, 32)
	if err != nil {
		return 0, 0, err
	}
	nspid, err = strconv.Atoi(string(pids[len(pids)-1]))
	return uint32(u), nspid, err
}

// statusFields returns the words of the line that starts with key.
func statusFields(status []byte, key string) [][]byte {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			return bytes.Fields(rest)
		}
	}
	return nil
}
