package delivery

import (
	"time"

	"github.com/cenkalti/backoff/v5"

	"fulgur/internal/export/otlpclient"
	"fulgur/internal/export/spool"
)

// schedule decides when to send which entry. The oldest comes first. After a failure, all
// sending pauses for a growing time, and then other entries come before the failed one: a
// back end, or a proxy in front of it, may refuse one entry forever.
type schedule struct {
	backoff  *backoff.ExponentialBackOff
	resume   time.Time // when the pause ends
	attempts map[*spool.Entry]*attempts
	success  uint64 // messages that were accepted
}

// attempts describes the failed attempts to send an entry.
type attempts struct {
	first time.Time // when it first failed
	next  time.Time // when to try again
	times int
	// alone counts the failures before which another entry was accepted since the previous
	// failure. success is schedule.success as of the last failure.
	alone   int
	success uint64
}

const (
	// maxDelay is the longest time until a failed entry is tried again.
	maxDelay = 2 * time.Minute
	// An entry that fails while others are accepted is lost after maxAlone such failures, but
	// not before the time expiry.
	maxAlone = 10
	expiry   = time.Hour
)

func newSchedule() schedule {
	return schedule{backoff: otlpclient.NewBackOff(), attempts: map[*spool.Entry]*attempts{}}
}

// next returns the entry to send next, or nil if there is none, and when to send it. At the
// end, the entries with the fewest failures come first, without their delays.
func (t *schedule) next(all []*spool.Entry, now time.Time, ending bool) (next *spool.Entry, at time.Time) {
	times := 0
	for _, e := range all {
		is, failed := t.attempts[e]
		switch {
		case !failed:
			return e, later(now, t.resume)
		case ending && (next == nil || is.times < times):
			next, at, times = e, now, is.times
		case !ending && !is.next.After(now):
			return e, later(now, t.resume)
		case !ending && (next == nil || is.next.Before(at)):
			next, at = e, is.next
		}
	}
	return next, later(at, t.resume)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// accepted records that the back end accepted a message.
func (t *schedule) accepted() {
	t.success++
	t.backoff.Reset()
	t.resume = time.Time{}
}

// resetBackoff ends the pause after a failure, and makes the next ones short again. It reports whether the
// last attempt failed.
func (t *schedule) resetBackoff() (failing bool) {
	failing = !t.resume.IsZero()
	t.resume = time.Time{}
	t.backoff.Reset()
	return failing
}

// failed records that the back end asked to send an entry again, no earlier than after if
// that is not 0. It returns true if only this entry has kept failing for long.
func (t *schedule) failed(e *spool.Entry, now time.Time, after time.Duration) (expired bool) {
	if after == 0 {
		after = t.backoff.NextBackOff()
	}
	t.resume = now.Add(after)
	is := t.postpone(e, now)
	if is.times > 1 && t.success > is.success {
		is.alone++
	}
	is.success = t.success
	return is.alone >= maxAlone && now.Sub(is.first) >= expiry
}

// unread records that an entry's file could not be read, and reports whether this is the
// entry's first failure.
func (t *schedule) unread(e *spool.Entry, now time.Time) (first bool) {
	t.resume = now.Add(t.backoff.NextBackOff())
	return t.postpone(e, now).times == 1
}

// postpone sets the time of an entry's next attempt.
func (t *schedule) postpone(e *spool.Entry, now time.Time) *attempts {
	is := t.attempts[e]
	if is == nil {
		is = &attempts{first: now, success: t.success}
		t.attempts[e] = is
	}
	is.next = now.Add(min(time.Second<<min(is.times, 16), maxDelay))
	is.times++
	return is
}

// forget drops the state of an entry that is gone.
func (t *schedule) forget(e *spool.Entry) { delete(t.attempts, e) }
