// Package epoll waits for file descriptors to become readable as the Go
// runtime waits for its own: the goroutine is parked.
//
// A goroutine in ppoll(2) keeps its processor, in the runtime's sense, and the
// runtime's monitor thread wakes up every 20 µs to see whether it should be
// taken away. In a program that mostly waits these wake-ups are most of what it
// costs.
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

// Set is a set of file descriptors. Its methods, [Set.Interrupt] apart, are not
// safe for concurrent use.
type Set struct {
	fds []int
	// epoll is an epoll instance with fds. It is itself a descriptor that the
	// runtime's poller can wait for.
	epoll *os.File
	conn  syscall.RawConn
	// interrupted has an element when a wait is to end at once.
	interrupted chan struct{}
}

// New returns an empty set.
func New() (*Set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll instance: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or os would not poll it
		return nil, errors.Join(fmt.Errorf("prepare an epoll instance: %w", err), unix.Close(fd))
	}
	s := &Set{epoll: os.NewFile(uintptr(fd), "epoll"), interrupted: make(chan struct{}, 1)}
	if s.conn, err = s.epoll.SyscallConn(); err != nil {
		return nil, errors.Join(err, s.epoll.Close())
	}
	return s, nil
}

// Wait returns when one of the descriptors is readable, d has passed or
// [Set.Interrupt] was called since the last Wait. The descriptors are those of
// the last call too, as a rule; one must not be closed before it was left out of
// a call.
func (s *Set) Wait(fds []int, d time.Duration) error {
	if err := s.follow(fds); err != nil {
		return err
	}
	if err := s.epoll.SetReadDeadline(time.Now().Add(d)); err != nil {
		return fmt.Errorf("wait for descriptors: %w", err)
	}
	select {
	case <-s.interrupted:
		return nil // perhaps before the deadline was set
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

// Interrupt ends the Wait that there is, or else the next one.
func (s *Set) Interrupt() {
	select {
	case s.interrupted <- struct{}{}:
	default:
	}
	_ = s.epoll.SetReadDeadline(time.Unix(0, 1)) // fails if the set is closed: nobody waits
}

// follow makes the set that of fds.
func (s *Set) follow(fds []int) error {
	if slices.Equal(s.fds, fds) {
		return nil
	}
	for _, fd := range s.fds {
		if !slices.Contains(fds, fd) {
			// Who closed it meanwhile has taken it out.
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

// Close releases the set, not its descriptors.
func (s *Set) Close() error { return s.epoll.Close() }
