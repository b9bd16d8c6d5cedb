// Package monotonic reads the clock of samples, mapping records and bursts of steps.
// These times give the kernel's messages their order.
package monotonic

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// anchor is a time of the Go runtime, which reads CLOCK_MONOTONIC from the vDSO, and
// nanoseconds is the same time on that clock. A system call for each time would also wake
// the runtime's monitor.
var anchor, nanoseconds = measureAnchor()

// measureAnchor reads both clocks several times, and keeps the pair that was read in the
// shortest time. nanoseconds is read first: Now may be late by that time, never early.
func measureAnchor() (anchor time.Time, nanoseconds uint64) {
	shortest := time.Duration(math.MaxInt64)
	for range 5 {
		var ts unix.Timespec
		before := time.Now()
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // fails only for unknown clocks
		after := time.Now()
		if took := after.Sub(before); took < shortest {
			shortest, anchor, nanoseconds = took, after, uint64(ts.Nano())
		}
	}
	return anchor, nanoseconds
}

// Now returns the time on CLOCK_MONOTONIC, in ns. The result may be up to a few
// microseconds old, but is never in the future.
func Now() uint64 { return At(time.Now()) }

// At returns the time on CLOCK_MONOTONIC, in ns, at t, which [time.Now] returned.
func At(t time.Time) uint64 { return nanoseconds + uint64(t.Sub(anchor)) }
