package delivery

import (
	"time"

	"github.com/cenkalti/backoff/v5"

	"fulgur/internal/export/otlpclient"
	"fulgur/internal/export/spool"
)

// turns decides what to send when. The oldest comes first. After a failure, the back end
// gets a growing rest, and the entry that failed gives others a turn: a back end, or a proxy
// before it, may ask to send it again forever.
type turns struct {
	rest    *backoff.ExponentialBackOff
	notYet  time.Time // when the back end's rest ends
	tried   map[*spool.Entry]*tried
	success uint64 // messages that were accepted
}

// tried is an entry that failed.
type tried struct {
	first time.Time // when it failed first
	next  time.Time // when it has its next turn
	times int
	// alone is how many times it failed although others were accepted since the time
	// before, success the number of those.
	alone   int
	success uint64
}

const (
	// maxTurn is the longest time until an entry that failed has its next turn.
	maxTurn = 2 * time.Minute
	// An entry that fails alone is lost after maxAlone failures and the time expiry.
	maxAlone = 10
	expiry   = time.Hour
)

func newTurns() turns { return turns{rest: otlpclient.NewBackOff(), tried: map[*spool.Entry]*tried{}} }

// next returns the entry to send next, and when; nil if there is none. At the end, those
// that failed least often come first, without waiting for their turns.
func (t *turns) next(all []*spool.Entry, now time.Time, ending bool) (next *spool.Entry, at time.Time) {
	times := 0
	for _, e := range all {
		is, failed := t.tried[e]
		switch {
		case !failed:
			return e, later(now, t.notYet)
		case ending && (next == nil || is.times < times):
			next, at, times = e, now, is.times
		case !ending && !is.next.After(now):
			return e, later(now, t.notYet)
		case !ending && (next == nil || is.next.Before(at)):
			next, at = e, is.next
		}
	}
	return next, later(at, t.notYet)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// accepted notes that the back end accepted a message.
func (t *turns) accepted() {
	t.success++
	t.rest.Reset()
	t.notYet = time.Time{}
}

// failed notes that the back end asks to send an entry again, after a time unless that is 0.
// It returns true if that happens to this one only, for long.
func (t *turns) failed(e *spool.Entry, now time.Time, after time.Duration) (expired bool) {
	if after == 0 {
		after = t.rest.NextBackOff()
	}
	t.notYet = now.Add(after)
	is := t.postpone(e, now)
	if is.times > 1 && t.success > is.success {
		is.alone++
	}
	is.success = t.success
	return is.alone >= maxAlone && now.Sub(is.first) >= expiry
}

// unread notes that an entry's file could not be read, and reports whether that is new.
func (t *turns) unread(e *spool.Entry, now time.Time) (first bool) {
	t.notYet = now.Add(t.rest.NextBackOff())
	return t.postpone(e, now).times == 1
}

// postpone sets the time of an entry's next turn.
func (t *turns) postpone(e *spool.Entry, now time.Time) *tried {
	is := t.tried[e]
	if is == nil {
		is = &tried{first: now, success: t.success}
		t.tried[e] = is
	}
	is.next = now.Add(min(time.Second<<min(is.times, 16), maxTurn))
	is.times++
	return is
}

// forget forgets an entry that is gone.
func (t *turns) forget(e *spool.Entry) { delete(t.tried, e) }
