package delivery

import (
	"testing"
	"time"

	"fulgur/internal/export/spool"
)

// entries returns entries of a spool, the oldest first.
func entries(n int) (all []*spool.Entry) {
	for range n {
		all = append(all, new(spool.Entry))
	}
	return all
}

// TestSchedule checks that other entries come first after a failure, and that the failed one
// is tried again.
func TestSchedule(t *testing.T) {
	now := time.Unix(1000, 0)
	ts := newSchedule()
	all := entries(3)
	turn := func(want int, after time.Duration) {
		t.Helper()
		e, at := ts.next(all, now, false)
		if e != all[want] || at.Sub(now) != after {
			t.Fatalf("got %v after %v, want %d after %v", e, at.Sub(now), want, after)
		}
	}
	const rest = 500 * time.Millisecond
	turn(0, 0)
	ts.failed(all[0], now, rest)
	turn(1, rest)
	now = now.Add(rest)
	turn(1, 0)
	ts.failed(all[1], now, rest)
	turn(2, rest)
	ts.accepted()
	turn(2, 0)
	all = all[:2]
	turn(0, rest) // a second after its failure
	now = now.Add(rest)
	turn(0, 0)
	ts.failed(all[0], now, rest)
	turn(1, rest)
	if e, at := ts.next(all, now.Add(rest), true); e != all[1] || at.After(now.Add(rest)) {
		t.Errorf("got %v at %v at the end, want the one that failed once", e, at)
	}
	if e, _ := ts.next(nil, now, true); e != nil {
		t.Errorf("got %v from no entries", e)
	}
}

// TestExpiry checks that an entry is lost if only it keeps failing for long, but not in an
// outage.
func TestExpiry(t *testing.T) {
	for _, others := range []bool{true, false} {
		now := time.Unix(1000, 0)
		ts := newSchedule()
		e := entries(1)[0]
		begin, times, expired := now, 0, false
		for ; now.Sub(begin) < 24*time.Hour && !expired; times++ {
			_, at := ts.next([]*spool.Entry{e}, now, false)
			if at.Sub(now) > maxDelay {
				t.Fatalf("got a turn after %v, want %v at most", at.Sub(now), maxDelay)
			}
			now = later(at, now)
			if others {
				ts.accepted()
			}
			expired = ts.failed(e, now, 0)
		}
		if expired != others || others && (now.Sub(begin) < expiry || times < maxAlone) {
			t.Errorf("others are accepted: %v: got expired %v after %v and %d failures", others, expired, now.Sub(begin), times)
		}
	}
}
