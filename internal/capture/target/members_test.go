package target

import (
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A process is listed once, however many of its threads are given.
func TestProcessesOf(t *testing.T) {
	thread, done := make(chan int), make(chan struct{})
	defer close(done)
	go func() {
		runtime.LockOSThread()
		thread <- unix.Gettid()
		<-done
	}()
	if got, want := ProcessesOf([]int{os.Getpid(), <-thread}), []int{os.Getpid()}; !slices.Equal(got, want) {
		t.Errorf("got %d, want %d", got, want)
	}
}
