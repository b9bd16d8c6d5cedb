package trigger

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// Host is what triggers look at.
type Host struct {
	Target target.Target
	// Members returns the processes or threads that belong to the target now, if it has a set of them.
	Members func() ([]int, error)
}

// pids returns the processes of the target.
func (h Host) pids() ([]int, error) {
	pids, err := target.Measured(h.Target, h.Members)
	return pids, err
}

// has reports whether a process belongs to the target.
func (h Host) has(pid int) bool {
	if h.Target.Scope == target.System {
		return true
	}
	pids, err := h.pids()
	return err == nil && slices.Contains(pids, pid)
}

// maxFirings limits the firings that wait for [Set.Take].
const maxFirings = 100

// Set watches several triggers. Except for Fire, its methods belong to one goroutine.
type Set struct {
	watched []*watched
	cpu     time.Duration // of the target since the last look
	looked  time.Time

	// Waits that were split while they were in progress, by thread: before the last cut, and at it.
	cutAt      int64
	split, cut map[int]Wait

	mu      sync.Mutex
	firings []Firing
	counts  map[string]uint64 // by trigger
}

// watched is a trigger with its watch.
type watched struct {
	*Trigger
	watch
	running atomic.Bool
}

// New returns a set of triggers, of which each is possible here. The error of another one is a usage error
// with the reason.
func New(triggers []*Trigger, host Host) (*Set, error) {
	s := &Set{split: map[int]Wait{}, cut: map[int]Wait{}, counts: map[string]uint64{}, looked: time.Now()}
	for _, t := range triggers {
		w := &watched{Trigger: t}
		if t.kind.open != nil {
			var err error
			if w.watch, err = t.kind.open(t, host); err != nil {
				return nil, usage.Errorf("trigger %q cannot work here: %v", t.Text, err)
			}
		}
		s.watched = append(s.watched, w)
	}
	return s, nil
}

// Has reports whether a kind of trigger is in the set.
func (s *Set) Has(name string) bool {
	return slices.ContainsFunc(s.watched, func(w *watched) bool { return w.Name == name })
}

// Fire adds a firing.
func (s *Set) Fire(f Firing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[f.Trigger]++
	if len(s.firings) < maxFirings {
		s.firings = append(s.firings, f)
	}
}

// fire adds a firing unless it is nil.
func (s *Set) fire(f *Firing) {
	if f != nil {
		s.Fire(*f)
	}
}

// Take returns the firings since the last call, at most some hundred.
func (s *Set) Take() []Firing {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.firings
	s.firings = nil
	return taken
}

// Counts returns how often each trigger fired.
func (s *Set) Counts() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]uint64{}
	for text, n := range s.counts {
		counts[text] = n
	}
	return counts
}

// OnCPU is told of the CPU time of a sample.
func (s *Set) OnCPU(e profile.OnCPU) { s.cpu += time.Duration(e.Weight) }

// Cut is told that waits in progress are split at a time.
func (s *Set) Cut(at int64) {
	s.cutAt, s.split, s.cut = at, s.cut, map[int]Wait{}
}

// OffCPU is told of a period off the CPU of a thread.
func (s *Set) OffCPU(w Wait) {
	if first, ok := s.cut[w.TID]; ok && w.Start == first.Start+first.Duration {
		w = joinWaits(first, w)
		delete(s.cut, w.TID)
	} else if first, ok := s.split[w.TID]; ok && w.Start == first.Start+first.Duration {
		w = joinWaits(first, w)
		delete(s.split, w.TID)
	}
	if s.cutAt != 0 && w.Start+w.Duration == s.cutAt && w.Waker.PID == 0 {
		s.cut[w.TID] = w // still in progress
		return
	}
	for _, of := range s.watched {
		if of.wait != nil {
			s.fire(of.wait(w))
		}
	}
}

// joinWaits returns the whole of a wait that was split.
func joinWaits(first, rest Wait) Wait {
	whole := rest
	whole.Start, whole.Duration = first.Start, first.Duration+rest.Duration
	if rest.Runnable == rest.Duration {
		whole.Runnable += first.Runnable
	}
	return whole
}

// Marker is told of a hit of an event, or of an interval.
func (s *Set) Marker(m Marker) {
	for _, of := range s.watched {
		if of.marker != nil {
			s.fire(of.marker(m))
		}
	}
}

// Look looks at the machine if it is time.
func (s *Set) Look(now time.Time) {
	since := now.Sub(s.looked)
	if since < look {
		return
	}
	cpu := s.cpu
	s.cpu, s.looked = 0, now
	at := int64(monotonic.At(now))
	for _, of := range s.watched {
		switch {
		case of.look != nil:
			if value, fires := of.look(since, cpu); fires {
				s.fire(of.firing(at, at-int64(of.hold), value, 0, 0))
			}
		case of.run != nil && of.running.CompareAndSwap(false, true):
			go func() {
				defer of.running.Store(false)
				if value, fires := of.run(); fires {
					at := int64(monotonic.Now())
					s.fire(of.firing(at, at, value, 0, 0))
				}
			}()
		}
	}
}

// Signal is told of SIGUSR1.
func (s *Set) Signal() {
	at := int64(monotonic.Now())
	s.Fire(Firing{Trigger: "signal", Name: "signal", At: at, Begin: at, Value: "SIGUSR1 to process " + strconv.Itoa(os.Getpid())})
}
