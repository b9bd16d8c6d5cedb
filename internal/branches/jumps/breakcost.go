package jumps

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/uprobe"
)

// nothing is a function for measuring the cost of a breakpoint.
//
//go:noinline
func nothing() {}

// codeOf returns the address of a function's code.
func codeOf(f func()) uintptr { return reflect.ValueOf(f).Pointer() }

// breakpointCosts are CPU times.
type breakpointCosts struct {
	hit time.Duration // of a hit
	// arm is the time that it takes to open and close a breakpoint, which is more than the thread
	// with the breakpoint loses.
	arm time.Duration
	// swap is the time that a breakpoint adds when its thread is switched out and in again.
	swap time.Duration
}

// breakpointCosts measures the costs of breakpoints with this thread.
func (s *kernelSide) breakpointCosts() (c breakpointCosts, err error) {
	const (
		rounds = 5
		calls  = 100
		sleeps = 20
	)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.hit, c.arm = math.MaxInt64, math.MaxInt64
	without, with := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for range rounds {
		without = min(without, timeOf(sleeps, sleepBriefly))
		begin := uprobe.ThreadTime()
		e, err := s.open(0, 0, uint64(codeOf(nothing)), math.MaxUint64, 2*calls)
		if err != nil {
			return c, err
		}
		opened := uprobe.ThreadTime()
		c.hit = min(c.hit, timeOf(calls, nothing))
		// Before Linux 6.6, arm64 does not step over a breakpoint that has a BPF program, so that
		// the thread hits it again and again until its limit.
		if r, err := e.Read(); err != nil || r.Count >= 2*calls {
			return c, errors.Join(err, e.Close(), fmt.Errorf("%w: hardware breakpoints do not go on after a hit; on arm64, they need Linux 6.6 or newer", ErrUnsupported))
		}
		with = min(with, timeOf(sleeps, sleepBriefly))
		called := uprobe.ThreadTime()
		if err := e.Close(); err != nil {
			return c, err
		}
		c.arm = min(c.arm, opened-begin+uprobe.ThreadTime()-called)
	}
	c.swap = max(with-without, 0)
	return c, nil
}

// timeOf returns the mean CPU time of n calls.
func timeOf(n int, call func()) time.Duration {
	begin := uprobe.ThreadTime()
	for range n {
		call()
	}
	return (uprobe.ThreadTime() - begin) / time.Duration(n)
}

// sleepBriefly causes this thread to be switched out and in again.
func sleepBriefly() { _ = unix.Nanosleep(&unix.Timespec{Nsec: 1}, nil) }
