package waiting

import (
	"testing"
	"time"
)

// slack is what a machine may add to a time that is measured twice, in ns.
const slack = int64(5 * time.Millisecond)

// The time asleep is what the program says, and its reason is named.
func TestSleeps(t *testing.T) {
	m := measure(t, "sleeps", "offcpu")
	if got := m.sum("sleeper", "[sleep]"); !near(got, m.truth.Slept, slack) {
		t.Errorf("%d ns of sleep, the program counts %d\n%s", got, m.truth.Slept, m.stderr)
	}
}

// Who waits for a turn waits for as long as the others take theirs.
func TestConvoy(t *testing.T) {
	m := measure(t, "convoy", "offcpu")
	if got := m.sum("convoy", "[sleep]"); !near(got, m.truth.Slept, slack) {
		t.Errorf("%d ns of sleep, the program counts %d\n%s", got, m.truth.Slept, m.stderr)
	}
	if got := m.sum("convoy", "[futex]"); !near(got, m.truth.Waited, slack) {
		t.Errorf("%d ns of futex, the program counts %d\n%s", got, m.truth.Waited, m.stderr)
	}
}
