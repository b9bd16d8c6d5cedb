// Package monotonic tells the time of the clock that samples, records of mappings
// and bursts of steps carry, by which what the kernel sends is put in order.
package monotonic

import "golang.org/x/sys/unix"

// Now returns the time of CLOCK_MONOTONIC, in ns.
func Now() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // fails for unknown clocks only
	return uint64(ts.Nano())
}
