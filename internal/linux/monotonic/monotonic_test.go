package monotonic

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Now is never ahead of the kernel's clock and never goes backwards.
func TestNow(t *testing.T) {
	last := uint64(0)
	for range 1000 {
		now := Now()
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		if now > uint64(ts.Nano()) {
			t.Fatalf("got %d, want at most %d", now, ts.Nano())
		}
		if now < last {
			t.Fatalf("got %d after %d, want it to increase", now, last)
		}
		last = now
	}
}
