package monotonic

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Now is never ahead of the kernel's clock, and does not go back.
func TestNow(t *testing.T) {
	last := uint64(0)
	for range 1000 {
		now := Now()
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		if now > uint64(ts.Nano()) {
			t.Fatalf("%d is after %d", now, ts.Nano())
		}
		if now < last {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
}
