package jumps

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// nothing is a function for measuring the cost of a breakpoint.
//
//go:noinline
func nothing() {}

// codeOf returns the address of a function's code.
func codeOf(f func()) uintptr { return reflect.ValueOf(f).Pointer() }

// breakpointCost returns the CPU time that a hit of a breakpoint takes, and the time that it takes to
// open and close one, which is more than the thread with the breakpoint loses. It measures both with
// this thread.
func (s *source) breakpointCost() (hit, arm time.Duration, err error) {
	const (
		rounds = 5
		calls  = 100
	)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	hit, arm = math.MaxInt64, math.MaxInt64
	for range rounds {
		begin := threadTime()
		e, err := s.open(0, 0, uint64(codeOf(nothing)), math.MaxUint64, 2*calls)
		if err != nil {
			return 0, 0, err
		}
		opened := threadTime()
		for range calls {
			nothing()
		}
		called := threadTime()
		// Before Linux 6.6, arm64 does not leave a breakpoint with a program before its last hit.
		if r, err := e.Read(); err != nil || r.Count >= 2*calls {
			return 0, 0, errors.Join(err, e.Close(), fmt.Errorf("%w: breakpoints are hit again and again; it needs Linux 6.6 or newer", ErrUnsupported))
		}
		if err := e.Close(); err != nil {
			return 0, 0, err
		}
		closed := threadTime()
		hit = min(hit, (called-opened)/calls)
		arm = min(arm, closed-called+opened-begin)
	}
	return hit, arm, nil
}

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // always exists
	return time.Duration(t.Nano())
}
