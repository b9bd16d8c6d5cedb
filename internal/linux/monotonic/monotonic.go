// Package monotonic reads the clock of samples, mapping records and bursts of steps.
// These times give the kernel's messages their order.
package monotonic

import "golang.org/x/sys/unix"

// Now returns the time on CLOCK_MONOTONIC, in ns.
func Now() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // fails only for unknown clocks
	return uint64(ts.Nano())
}
