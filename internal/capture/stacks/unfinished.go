package stacks

import (
	"slices"
	"time"
)

// Limits on stacks whose functions are read again, because the process did not answer in time.
const (
	maxUnfinished = 1 << 10 // stacks; each takes some KB
	maxRetries    = 10      // for each stack
	retryTime     = 250 * time.Millisecond
)

// retry is a stack whose functions are to be read again.
type retry struct {
	record []byte
	tries  int
	next   time.Time
}

// keepUnfinished keeps the record of a stack, so that the next sample with it reads its
// functions again. The kernel side does not send the record again.
func (s *Store) keepUnfinished(id uint64, record []byte) {
	if len(s.retries) < maxUnfinished {
		s.retries[id] = retry{record: slices.Clone(record), next: s.now().Add(retryTime)}
	}
}

// finish reads the functions of a stack again if they are missing and some time has passed.
func (s *Store) finish(id uint64) {
	again, ok := s.retries[id]
	if !ok || s.now().Before(again.next) {
		return
	}
	again.tries++
	again.next = s.now().Add(retryTime)
	s.retries[id] = again
	s.unfinished = false
	if r, err := s.parse(again.record); err == nil {
		// A process that has ended yields fewer functions than before.
		if trace := s.traceOf(r); !s.unfinished {
			s.ids[id] = trace
		}
	}
	if !s.unfinished || again.tries == maxRetries {
		delete(s.retries, id)
	}
}
