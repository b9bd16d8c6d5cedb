package safeopen

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/helper"
	"fulgur/internal/linux/capability"
)

// A thread that waits for FUSE cannot be killed once the daemon has read its request, and
// until it returns its process cannot end: neither by exit(2) nor by SIGKILL. So this
// process never accesses a FUSE file system or an unknown one. A helper process does so
// instead and may stay behind.
//
// Each operation carries at most one O_PATH descriptor, and is answered before the next one
// is sent. A user may run the helper too: it has only the user's privileges.

// helperName is the helper's name.
const helperName = "fulgur-files"

// reply answers an operation, with the data read.
type reply struct{ Errno uint32 }

func init() { helper.Serve(helperName, serve) }

// serve is the helper's main loop.
func serve(conn *net.UnixConn) error {
	if err := capability.Drop(); err != nil {
		return err
	}
	if err := helper.Send(conn, reply{}, nil); err != nil { // a greeting
		return err
	}
	for {
		var o operation
		name, fds, err := helper.Receive(conn, &o, unix.PathMax)
		if err != nil {
			return err
		}
		body, found, err := o.do(first(fds), string(name), AsUser)
		var errno unix.Errno
		if err != nil && !errors.As(err, &errno) {
			errno = unix.EIO
		}
		var answers []int
		if found >= 0 {
			answers = append(answers, found)
		}
		err = helper.Send(conn, reply{uint32(errno)}, body, answers...)
		helper.Close(append(fds, answers...))
		if err != nil {
			return err
		}
	}
}

// first returns the first of the descriptors received, or -1.
func first(fds []int) int {
	if len(fds) == 0 {
		return -1
	}
	return fds[0]
}

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

// remotely has a helper carry out an operation on fd. The error is an errno, or reports that
// there is no helper.
func remotely(o operation, fd int, name string) (body []byte, found int, err error) {
	if len(name) >= unix.PathMax {
		return nil, -1, unix.ENAMETOOLONG
	}
	conn, err := idleHelper()
	if err != nil {
		return nil, -1, fmt.Errorf("ask a helper process to open files: %w", err)
	}
	var answered reply
	var fds []int
	err = helper.Send(conn, o, []byte(name), fd)
	if err == nil {
		_, err = helper.Await(conn, helper.NoLimit) // so that [blocked] notices it
	}
	if err == nil {
		body, fds, err = helper.Receive(conn, &answered, maxAnswer)
	}
	dismiss(conn, err == nil)
	if err != nil {
		return nil, -1, fmt.Errorf("ask a helper process to open files: %w", err)
	}
	if answered.Errno != 0 {
		err = unix.Errno(answered.Errno)
	}
	return body, first(fds), err
}

// idleHelper returns the connection to a helper that does nothing. It ends when the connection is
// closed or, if it blocks on a file system, when that responds.
func idleHelper() (*net.UnixConn, error) {
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
	starting.Add(1)
	defer starting.Add(-1)
	conn, _, err := helper.Start(helperName)
	if err != nil {
		return nil, err
	}
	if err := greeted(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	helpers.all++
	return conn, nil
}

// starting is the number of helpers that are starting. On a busy machine, this takes seconds in
// which no file system keeps a request waiting: they do not count.
var starting atomic.Int32

// startTimeout is the time limit for the start of a helper.
const startTimeout = 30 * time.Second

// greeted waits for the first message of a helper.
func greeted(conn *net.UnixConn) error {
	var hello reply
	if err := conn.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	if _, _, err := helper.Receive(conn, &hello, 0); err != nil {
		return err
	}
	return conn.SetReadDeadline(time.Time{})
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
