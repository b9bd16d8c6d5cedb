package testenv

import (
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
