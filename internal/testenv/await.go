package testenv

import (
	"runtime"
	"testing"
	"time"
)

// awaitLimit is the time limit of a wait. It allows for very busy machines.
const awaitLimit = 3 * time.Minute

// Await waits until holds returns true. After three minutes, or a multiple in the rig's VMs, it
// fails the test with the text that why returns. It pauses for a millisecond or more between
// two calls of holds, so that holds uses at most a fifth of a CPU unless it is very slow.
func Await(t testing.TB, holds func() bool, why func() string) {
	t.Helper()
	await(t, Patience(awaitLimit), holds, why)
}

// Receive returns the next value of a channel, or the zero value if it is closed. It waits as
// long as [Await], and then fails the test with the given reason and logs the stacks of all
// goroutines.
func Receive[T any](t testing.TB, c <-chan T, why string) T {
	t.Helper()
	return receive(t, Patience(awaitLimit), c, why)
}

func await(t testing.TB, patience time.Duration, holds func() bool, why func() string) {
	t.Helper()
	const maxPause = 50 * time.Millisecond
	for end := time.Now().Add(patience); ; {
		// After a stall of the machine, holds gets one more chance.
		begin := time.Now()
		if holds() {
			return
		}
		if begin.After(end) {
			t.Fatalf("timeout after %v: %s", patience, why())
		}
		time.Sleep(min(max(time.Millisecond, 4*time.Since(begin)), maxPause))
	}
}

func receive[T any](t testing.TB, patience time.Duration, c <-chan T, why string) (value T) {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case value = <-c:
	case <-timeout.C:
		stacks := make([]byte, 64<<10)
		t.Logf("%s", stacks[:runtime.Stack(stacks, true)])
		t.Fatalf("timeout after %v: %s", patience, why)
	}
	return value
}
