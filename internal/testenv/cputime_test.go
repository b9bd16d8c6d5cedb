package testenv

import (
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// CPU times of processes match getrusage.
func TestCPUTime(t *testing.T) {
	rusage := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	var done atomic.Bool
	defer done.Store(true)
	go func() {
		for !done.Load() { // uses CPU time
		}
	}()
	before := rusage()
	AwaitCPUTime(t, os.Getpid(), 20*time.Millisecond)
	used, err := CPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	after := rusage()
	// getrusage rounds down to microseconds.
	if used < before+20*time.Millisecond || used > after+2*time.Microsecond {
		t.Errorf("got %v, want more than getrusage's %v by 20 ms, and at most its later %v", used, before, after)
	}
	if _, err := CPUTime(1<<22 + 1); err == nil {
		t.Error("got no error for a pid that does not exist")
	}
}
