package safeopen

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// helpers is the pool of helper processes. One is enough as long as file systems respond;
// each one that does not respond occupies one.
var helpers struct {
	mu   sync.Mutex
	idle []*net.UnixConn
	all  int
}

// maxHelpers bounds the helpers, and maxIdle the idle ones.
const (
	maxHelpers = 64
	maxIdle    = 2
)

var errHelpers = fmt.Errorf("%d processes wait for file systems, and no more are started: %w", maxHelpers, ErrNoAnswer)

// remotely sends r with fd and name to a helper and waits for the reply. The error is an
// errno, or reports that there is no helper.
func remotely(r request, fd int, name string) (body []byte, found int, err error) {
	conn, err := helper()
	if err != nil {
		return nil, -1, fmt.Errorf("ask a helper process to open files: %w", err)
	}
	r.Size = uint32(len(name))
	var answered reply
	err = send(conn, r, []byte(name), fd)
	if err == nil {
		err = awaitReply(conn)
	}
	if err == nil {
		found, err = receive(conn, &answered)
	}
	if err == nil && answered.Size > maxReply {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		body = make([]byte, answered.Size)
		_, err = io.ReadFull(conn, body)
	}
	dismiss(conn, err == nil)
	if err != nil {
		return nil, -1, fmt.Errorf("ask a helper process to open files: %w", err)
	}
	if answered.Errno != 0 {
		return body, found, unix.Errno(answered.Errno)
	}
	return body, found, nil
}

// awaitReply waits in a system call, so that [blocked] notices it.
func awaitReply(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(fd uintptr) {
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		}
	}); e != nil {
		return e
	}
	return err
}

// helper returns the connection to an idle helper.
func helper() (*net.UnixConn, error) {
	helpers.mu.Lock()
	defer helpers.mu.Unlock()
	if n := len(helpers.idle); n > 0 {
		conn := helpers.idle[n-1]
		helpers.idle = helpers.idle[:n-1]
		return conn, nil
	}
	if helpers.all >= maxHelpers {
		return nil, errHelpers
	}
	conn, err := startHelper()
	if err == nil {
		helpers.all++
	}
	return conn, err
}

// dismiss returns a helper to the pool if it works.
func dismiss(conn *net.UnixConn, works bool) {
	helpers.mu.Lock()
	defer helpers.mu.Unlock()
	if works && len(helpers.idle) < maxIdle {
		helpers.idle = append(helpers.idle, conn)
		return
	}
	helpers.all--
	_ = conn.Close() // this ends the helper
}

// startHelper starts a helper. It ends when its connection is closed or, if it blocks on
// a file system, when that responds.
func startHelper() (*net.UnixConn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), helperName)
	conn, err := socket(os.NewFile(uintptr(pair[0]), helperName))
	if err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	cmd := exec.Cmd{
		Path: "/proc/self/exe", Args: []string{helperName}, Dir: "/",
		ExtraFiles: []*os.File{theirs}, // the first is helperSocket
		// No terminal session waits for it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	if err := errors.Join(err, theirs.Close()); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go func() { _ = cmd.Wait() }() // its exit status does not matter
	return conn, nil
}
