package testenv

import (
	"testing"
	"time"
)

// Await waits until holds returns true. After a minute, or several minutes in the rig's VMs,
// it fails the test with the text that why returns.
func Await(t testing.TB, holds func() bool, why func() string) {
	t.Helper()
	await(t, Patience(time.Minute), holds, why)
}

func await(t testing.TB, patience time.Duration, holds func() bool, why func() string) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout after %v: %s", patience, why())
		}
	}
}
