package delivery

import (
	"strings"
	"time"
)

// outcome is the result of an attempt to send a message, or to write it to the spool.
type outcome int

const (
	accepted outcome = iota
	rejected         // in part
	retried
	refused
)

// reports decides what to log about attempts: only changes of the outcome or of its cause, and not too
// many of them, since a back end or a disk may fail at every other message for days.
type reports struct {
	// again is the message when attempts succeed again.
	again  string
	last   outcome
	cause  string      // of last, without digits: ports and numbers of samples change each time
	told   bool        // a failure was logged, and nothing since
	owed   bool        // the last change was not logged, since there were too many
	recent []time.Time // when failures were logged, oldest first
}

const (
	// At most maxReports failures are logged in the time reportTime.
	maxReports = 10
	reportTime = time.Hour
)

// message returns the message to log after an attempt, empty for none. failure describes a failed
// attempt.
func (r *reports) message(o outcome, failure string, now time.Time) string {
	cause := strings.Map(withoutDigits, failure)
	if o == r.last && cause == r.cause && !r.owed {
		return ""
	}
	r.last, r.cause, r.owed = o, cause, false
	if o == accepted {
		failure = ""
		if r.told {
			failure = r.again
		}
		r.told = false
		return failure
	}
	for len(r.recent) > 0 && now.Sub(r.recent[0]) >= reportTime {
		r.recent = r.recent[1:]
	}
	if len(r.recent) == maxReports {
		r.owed = true
		return ""
	}
	r.recent, r.told = append(r.recent, now), true
	if len(r.recent) == maxReports {
		failure += "; no more messages like this for an hour"
	}
	return failure
}

// withoutDigits drops the digits of a text.
func withoutDigits(r rune) rune {
	if '0' <= r && r <= '9' {
		return -1
	}
	return r
}
