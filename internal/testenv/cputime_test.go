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
		for !done.Load() { // it works
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
		t.Errorf("%v were used, and getrusage said %v before 20 ms more and %v after", used, before, after)
	}
	if _, err := CPUTime(1<<22 + 1); err == nil {
		t.Error("no error for a process that there is not")
	}
}
