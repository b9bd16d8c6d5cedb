package perfring

import (
	"slices"
	"sync"
	"time"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
)

// reading is the state of the goroutine that reads the rings. With copies of stacks, a ring has room for some 30 samples:
// fewer than arrive between two polls of a busy session.
type reading struct {
	mu    sync.Mutex // for the rings and what follows
	fresh []perfevent.Record
	// dropped is the number of records for which fresh had no room.
	dropped uint64
	err     error // the first

	stop chan struct{} // nil before the start and after the end
	done chan struct{}
}

// Times between two reads of the rings: readAtLeast is the longest, readOften that of events of unknown rate.
const (
	readAtLeast = 100 * time.Millisecond
	readOften   = 5 * time.Millisecond
)

// interval returns the time between two reads of the rings: a quarter of the time in which the largest samples fill a ring.
//
// The rings' descriptors become readable, too, but the kernel's perf_poll reports this only once. Through the nested
// epoll instances that Go uses, most of these reports get lost.
func (s *Source) interval() time.Duration {
	rate := s.options.Frequency
	if p := s.options.Period; p > 0 {
		if !s.options.Spec.IsTime() {
			return readOften
		}
		rate = uint64(time.Second) / p
	}
	samples := time.Duration(s.events.smallest) / (stackCopy + 1<<10)
	return min(max(samples*time.Second/time.Duration(max(rate, 1))/4, time.Millisecond), readAtLeast)
}

// maxFresh limits the records between two polls of the session.
const maxFresh = 1 << 18

// startReading starts the goroutine.
func (s *Source) startReading() {
	r := &s.reading
	stop, done := make(chan struct{}), make(chan struct{})
	r.stop, r.done = stop, done
	every := time.NewTicker(s.interval())
	go func() {
		defer close(done)
		defer every.Stop()
		for {
			select {
			case <-stop:
				return
			case <-every.C:
			}
			r.mu.Lock()
			s.read()
			r.mu.Unlock()
		}
	}()
}

// stopReading ends the goroutine.
func (s *Source) stopReading() {
	if r := &s.reading; r.stop != nil {
		close(r.stop)
		<-r.done
		r.stop = nil
	}
}

// read reads the rings. The caller holds the lock.
func (s *Source) read() {
	lost, err := s.events.read(s.keep)
	if s.began.Load() > 0 {
		s.lost.Add(lost)
	}
	if s.reading.err == nil {
		s.reading.err = err
	}
}

// takeRead reads the rings, and returns all records since the last call, and the first error.
func (s *Source) takeRead() ([]perfevent.Record, error) {
	r := &s.reading
	r.mu.Lock()
	defer r.mu.Unlock()
	s.read()
	fresh, err := r.fresh, r.err
	if r.dropped > 0 { // the mappings of processes are read again
		fresh = append(fresh, perfevent.Lost{Stamp: perfevent.Stamp{Time: monotonic.Now()}, N: r.dropped})
	}
	r.fresh, r.err, r.dropped = nil, nil, 0
	return fresh, err
}

// keep stores a record of a ring. The caller holds the lock.
func (s *Source) keep(record perfevent.Record) {
	one, ok := record.(perfevent.Sample)
	switch {
	case ok && s.began.Load() == 0:
		return
	case ok && (s.held.Load() > maxHeld || len(s.reading.fresh) > maxFresh):
		s.lost.Add(1)
		return
	case len(s.reading.fresh) > maxFresh:
		s.reading.dropped++
		return
	case ok:
		one.Chain, one.User.Regs, one.User.Stack = slices.Clone(one.Chain), slices.Clone(one.User.Regs), slices.Clone(one.User.Stack)
		s.held.Add((&sample{Sample: one}).size())
		record = one
	}
	s.reading.fresh = append(s.reading.fresh, record)
}
