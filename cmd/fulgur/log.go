package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// logFlag is the flag of commands that can write a debug log.
type logFlag struct {
	Log string `placeholder:"FILE" group:"output" help:"Write a debug log to FILE, for a bug report: what fulgur found, chose and gave up, and why."`
}

// logFile returns the path of the debug log, "" for none.
func (l logFlag) logFile() string { return l.Log }

// startLog directs slog to the file that c names, if any. The caller must call stop
// at the end.
func startLog(c command, args []string) (stop func() error, err error) {
	l, ok := c.(interface{ logFile() string })
	if !ok || l.logFile() == "" {
		return func() error { return nil }, nil
	}
	f, err := createLog(l.logFile())
	if err != nil {
		return nil, err
	}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug})))
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return nil, fmt.Errorf("uname: %w", err)
	}
	slog.Debug("start", "version", versionLine(), "args", args, "kernel", unix.ByteSliceToString(kernel.Release[:]),
		"arch", runtime.GOARCH, "cpus", runtime.NumCPU(), "euid", os.Geteuid())
	return func() error {
		slog.SetDefault(before)
		return f.Close()
	}, nil
}

// createLog creates the file at path, or truncates it if it is a regular file of the
// user: in a directory such as /tmp, another user may have created a file or a link
// there. Unlike a profile, a log is written in place, so that it survives if fulgur
// is killed.
func createLog(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "create the log", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != uint32(os.Geteuid()) || st.Nlink > 1) {
		err = fmt.Errorf("not a regular file of this user; choose another name")
	}
	if err == nil {
		err = unix.Ftruncate(fd, 0)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, &os.PathError{Op: "create the log", Path: path, Err: err}
	}
	return f, nil
}
