package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// AwaitPolls waits until a Go program has an epoll instance besides the one of Go's runtime.
// fulgur opens one when it has begun to measure. It returns false if the program ends first, or if that takes
// too long.
func AwaitPolls(t testing.TB, pid int) bool {
	t.Helper()
	for end := time.Now().Add(Patience(awaitLimit)); time.Now().Before(end); time.Sleep(time.Millisecond) {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			t.Fatal(err)
		}
		if len(fds) == 0 {
			return false // it has ended
		}
		instances := 0
		for _, fd := range fds {
			// It may be closed by now.
			if link, err := os.Readlink(fd); err == nil && link == "anon_inode:[eventpoll]" {
				instances++
			}
		}
		if instances > 1 {
			return true
		}
	}
	return false
}
