// Package epoll waits for file descriptors to become readable the way the Go runtime
// does: by parking the goroutine.
//
// A goroutine blocked in ppoll(2) keeps its P, and the runtime's sysmon thread wakes up
// every 20 µs to see whether to retake it. In a program that mostly waits, these wake-ups
// are most of the cost.
package epoll

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Set is a set of file descriptors. Its methods are not safe for concurrent use, except
// for [Set.Interrupt].
type Set struct {
	fds []int
	// epoll is an epoll instance with fds. It is itself a descriptor that the runtime's
	// poller can wait for.
	epoll *os.File
	conn  syscall.RawConn
	// interrupted holds an element if a wait is to end at once.
	interrupted chan struct{}
}

// New returns an empty set.
func New() (*Set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll instance: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // otherwise os would not poll it
		return nil, errors.Join(fmt.Errorf("prepare an epoll instance: %w", err), unix.Close(fd))
	}
	s := &Set{epoll: os.NewFile(uintptr(fd), "epoll"), interrupted: make(chan struct{}, 1)}
	if s.conn, err = s.epoll.SyscallConn(); err != nil {
		return nil, errors.Join(err, s.epoll.Close())
	}
	return s, nil
}

// Wait returns when one of the descriptors is readable, d has passed, or [Set.Interrupt]
// was called since the last Wait. Passing the same descriptors as in the last call is
// cheap. Omit a descriptor from a call before closing it.
func (s *Set) Wait(fds []int, d time.Duration) error {
	if err := s.follow(fds); err != nil {
		return err
	}
	if err := s.epoll.SetReadDeadline(time.Now().Add(d)); err != nil {
		return fmt.Errorf("wait for descriptors: %w", err)
	}
	select {
	case <-s.interrupted:
		return nil // possibly before the deadline was set
	default:
	}
	var events [1]unix.EpollEvent
	var failure error
	err := s.conn.Read(func(fd uintptr) bool {
		n, err := unix.EpollWait(int(fd), events[:], 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			failure = err
		}
		return n != 0
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	select {
	case <-s.interrupted:
	default:
	}
	if err := errors.Join(err, failure); err != nil {
		return fmt.Errorf("wait for descriptors: %w", err)
	}
	return nil
}

// Interrupt ends the current Wait, or the next one.
func (s *Set) Interrupt() {
	select {
	case s.interrupted <- struct{}{}:
	default:
	}
	_ = s.epoll.SetReadDeadline(time.Unix(0, 1)) // fails if the set is closed: there is no waiter
}

// follow updates the set to fds.
func (s *Set) follow(fds []int) error {
	if slices.Equal(s.fds, fds) {
		return nil
	}
	for _, fd := range s.fds {
		if !slices.Contains(fds, fd) {
			// Closing a descriptor removes it.
			_ = s.control(unix.EPOLL_CTL_DEL, fd)
		}
	}
	for _, fd := range fds {
		err := s.control(unix.EPOLL_CTL_ADD, fd)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("watch descriptor %d: %w", fd, err)
		}
	}
	s.fds = slices.Clone(fds)
	return nil
}

func (s *Set) control(op, fd int) error {
	var failure error
	err := s.conn.Control(func(epoll uintptr) {
		failure = unix.EpollCtl(int(epoll), op, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	})
	return errors.Join(err, failure)
}

// Close releases the set but not its descriptors.
func (s *Set) Close() error { return s.epoll.Close() }
