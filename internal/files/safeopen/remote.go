package safeopen

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/helper"
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
	conn, err := idleHelper()
	if err != nil {
		return nil, -1, fmt.Errorf("ask a helper process to open files: %w", err)
	}
	r.Size = uint32(len(name))
	var answered reply
	var given []int
	if fd >= 0 {
		given = append(given, fd)
	}
	err = helper.Send(conn, r, []byte(name), given...)
	if err == nil {
		err = helper.Await(conn) // so that [blocked] notices it
	}
	found = -1
	if err == nil {
		var fds []int
		fds, err = helper.Receive(conn, &answered)
		found = first(fds)
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

// starting is the number of helpers that are starting. On a busy machine, this takes seconds in which no file system
// keeps a question waiting: they do not count.
var starting atomic.Int32

// startWithin is the time limit for the start of a helper.
const startWithin = 30 * time.Second

// greeted waits for the first message of a helper.
func greeted(conn *net.UnixConn) error {
	var hello reply
	if err := conn.SetReadDeadline(time.Now().Add(startWithin)); err != nil {
		return err
	}
	if _, err := helper.Receive(conn, &hello); err != nil {
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
