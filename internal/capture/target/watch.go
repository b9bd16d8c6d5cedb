package target

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
)

// Watch returns a channel that is closed when all tasks of ids, which may be
// processes or threads, have exited. A process exits with its last thread. If ctx
// ends first, the channel stays open.
func Watch(ctx context.Context, ids []int) <-chan struct{} {
	var running sync.WaitGroup
	for _, id := range ids {
		// Opened before Watch returns: from here on, a reused ID is not
		// mistaken for the task.
		wait := exitWaiter(id)
		running.Go(func() { wait(ctx) })
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		if ctx.Err() == nil {
			close(done)
		}
	}()
	return done
}

// exitWaiter returns a function that blocks until the task has exited or its context has
// ended.
func exitWaiter(id int) func(context.Context) {
	fd, err := unix.PidfdOpen(id, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		// Not a process. Threads have pidfds since Linux 6.9.
		fd, err = unix.PidfdOpen(id, unix.PIDFD_NONBLOCK|unix.PIDFD_THREAD)
	}
	if errors.Is(err, unix.ESRCH) {
		return func(context.Context) {}
	}
	if err != nil {
		return func(ctx context.Context) { pollExit(ctx, id) }
	}
	// Non-blocking, so that the runtime's poller waits for it, without blocking
	// a thread, and Close wakes the waiter.
	f := os.NewFile(uintptr(fd), "pidfd")
	return func(ctx context.Context) {
		defer f.Close()
		defer context.AfterFunc(ctx, func() { f.Close() })()
		conn, err := f.SyscallConn()
		if err != nil {
			return
		}
		// An error means that f was closed.
		_ = conn.Read(readable)
	}
}

// readable reports whether the task of a pidfd has exited.
func readable(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0
}

// pollExit is for threads before Linux 6.9, which have no pidfd.
func pollExit(ctx context.Context, tid int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if s, err := procfs.Process(tid).Stat(); err != nil || s.Exited() {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
