package slow

import (
	"errors"
	"math"
	"time"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/profile/encode/histogram"
)

var _ interface {
	source.Source
	source.Waiting
	source.Rewalker
} = (*Source)(nil)

// Source is the loaded kernel side: the events, the switches between threads, and samples.
type Source struct {
	*latency.Source
	config  sampling.Config
	events  *sampling.Events
	slow    Bounds
	share   float64 // see [Config.Slowest]; 0 if the bounds are given
	checked time.Time
}

// Bounds are the lengths of slow intervals: at least From, and less than Until.
type Bounds struct{ From, Until time.Duration }

// without an upper limit.
const forever = time.Duration(math.MaxInt64)

// Attach implements [source.Source].
func (s *Source) Attach(t target.Target) (err error) {
	if s.share == 0 {
		if err := s.set(s.slow); err != nil {
			return err
		}
	}
	if err := s.Source.Attach(t); err != nil {
		return err
	}
	s.config.Program = s.Programs[bpf.LatencyProgPartsSample].FD()
	s.events, err = sampling.Open(s.config)
	return err
}

// set passes the bounds to the kernel side.
func (s *Source) set(b Bounds) error {
	s.slow = b
	return s.SetSlow(uint64(b.From), uint64(b.Until))
}

// Enable implements [source.Source].
func (s *Source) Enable() error { return s.events.Enable() }

// Detach implements [source.Source].
func (s *Source) Detach() error { return errors.Join(s.events.Disable(), s.Source.Detach()) }

// FollowCPUs implements [source.Source].
func (s *Source) FollowCPUs(online []int) error { return s.events.Follow(online) }

// Check implements [source.Source]. It adapts the bounds to the intervals so far.
func (s *Source) Check() error {
	if s.share == 0 || time.Since(s.checked) < adaptEvery {
		return s.events.CheckThrottling()
	}
	s.checked = time.Now()
	times, err := s.Distribution()
	if err == nil {
		if from, ok := threshold(times, s.share); ok && time.Duration(from) != s.slow.From {
			err = s.set(Bounds{time.Duration(from), forever})
		}
	}
	return errors.Join(err, s.events.CheckThrottling())
}

// Stats implements [source.Source].
func (s *Source) Stats() (probe.Stats, error) { return s.Source.Stats() }

// Close implements [source.Source].
func (s *Source) Close() error {
	if s.events == nil {
		return s.Source.Close()
	}
	return errors.Join(s.events.Close(), s.Source.Close())
}

// adaptEvery is the least time between two changes of the bounds, and fewest the number of
// intervals in the slowest share from which on they are known.
const (
	adaptEvery = 100 * time.Millisecond
	fewest     = 10
)

// threshold returns the least time in ns of the slowest share of times: at most that share is as long, or
// longer, unless many times are in one slot. It returns false if there are too few times.
func threshold(t histogram.Times, share float64) (from uint64, ok bool) {
	n := float64(t.Count())
	if n*share < fewest {
		return 0, false
	}
	slow := uint64(0)
	for i := len(t.Slots) - 1; i >= 0; i-- {
		slot := t.Slots[i]
		slow += slot.Count
		if float64(slow) > n*share {
			if i == len(t.Slots)-1 {
				return max(slot.Low, 1), true
			}
			return t.Slots[i+1].Low, true
		}
	}
	return max(t.Slots[0].Low, 1), true
}
