package testenv

import (
	"os"
	"testing"
)

// SetOnline takes CPU 1 offline, or online again. It may be offline only in a [VM]. It is online again
// when the test has ended.
func SetOnline(t testing.TB, online bool) {
	t.Helper()
	const file = "/sys/devices/system/cpu/cpu1/online"
	state := "0"
	if online {
		state = "1"
	} else {
		t.Cleanup(func() { _ = os.WriteFile(file, []byte("1"), 0o644) })
	}
	if err := os.WriteFile(file, []byte(state), 0o644); err != nil {
		t.Fatal(err)
	}
}
