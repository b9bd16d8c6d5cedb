package budget

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(time.Second, 10)
		want := func(d time.Duration) {
			t.Helper()
			if got := b.Left(); got != d {
				t.Errorf("got %v, want %v", got, d)
			}
		}
		want(time.Second)
		b.Spend(5 * time.Second)
		want(0)
		time.Sleep(40 * time.Second)
		want(0)
		time.Sleep(5 * time.Second)
		want(500 * time.Millisecond)
		time.Sleep(time.Hour)
		want(time.Second)
	})
}
