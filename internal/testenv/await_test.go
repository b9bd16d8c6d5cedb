package testenv

import (
	"strings"
	"testing"
	"time"
)

func TestAwait(t *testing.T) {
	n := 0
	if got := verdict(func(tb testing.TB) {
		Await(tb, func() bool { n++; return n == 3 }, func() string { return "" })
	}); got.verdict != "pass" || n != 3 {
		t.Errorf("got %s after %d calls, want pass after 3", got.verdict, n)
	}
	got := verdict(func(tb testing.TB) {
		await(tb, time.Millisecond, func() bool { return false }, func() string { return "never" })
	})
	if got.verdict != "fail" || got.reason != "timeout after 1ms: never" {
		t.Errorf("got %s, %q; want a failure", got.verdict, got.reason)
	}
}

func TestReceive(t *testing.T) {
	c := make(chan int, 1)
	c <- 5
	if got := Receive(t, c, ""); got != 5 {
		t.Errorf("got %d, want 5", got)
	}
	close(c)
	if got := Receive(t, c, ""); got != 0 {
		t.Errorf("got %d from a closed channel, want 0", got)
	}
	got := verdict(func(tb testing.TB) { receive(tb, time.Millisecond, make(chan int), "no number") })
	if got.verdict != "fail" || got.reason != "timeout after 1ms: no number" {
		t.Errorf("got %s, %q; want a failure", got.verdict, got.reason)
	}
	if !strings.Contains(got.log, "testenv.TestReceive") {
		t.Errorf("got log %q, want the stacks of all goroutines", got.log)
	}
}
