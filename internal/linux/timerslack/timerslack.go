// Package timerslack lets the kernel delay the timers of this process, so that it wakes up less
// often.
//
// While any goroutine runs, the Go runtime's monitor thread sleeps for 20 µs at a time. With the
// default slack of 50 µs, it wakes up about 14 times in each millisecond of work.
package timerslack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
)

// Set lets the kernel delay timers by up to slack in all threads of this process, and in the
// threads and processes that they start from now on. It needs CAP_SYS_NICE, and a /proc that
// shows this process and is writable.
func Set(slack time.Duration) error {
	threads, err := procfs.Self.Threads()
	if err != nil {
		return fmt.Errorf("delay timers: %w", err)
	}
	for _, tid := range threads {
		// Only this file reaches other threads; prctl(2) does not.
		err := os.WriteFile(procfs.Path(tid, "timerslack_ns"), fmt.Appendf(nil, "%d", slack.Nanoseconds()), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // the thread may have ended
			return fmt.Errorf("delay timers: %w", err)
		}
	}
	return nil
}
