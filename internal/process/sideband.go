package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
)

// Sideband hears of what all processes do: one software event that counts
// nothing on each CPU, and its ring. The zero Sideband listens on no CPU. It is not safe
// for concurrent use.
type Sideband struct {
	pages   int
	cpus    map[int]listener
	pending []perfevent.Record // read, but not in order yet
}

type listener struct {
	event *perfevent.Event
	ring  *perfevent.Ring
}

// OpenSideband starts to listen on the given CPUs, with rings of pages data
// pages (a power of two) each. CPUs that are offline by now are left out.
func OpenSideband(cpus []int, pages int) (*Sideband, error) {
	s := &Sideband{pages: pages, cpus: map[int]listener{}}
	for _, cpu := range cpus {
		if err := s.AddCPU(cpu); err != nil && !errors.Is(err, unix.ENODEV) {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// AddCPU starts to listen on cpu, which came online, again if it was there
// before: the kernel stops the events of a CPU that goes offline.
func (s *Sideband) AddCPU(cpu int) error {
	event, err := perfevent.Open(perfevent.Attr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY,
		Mmap2: true, Comm: true, CommExec: true, Task: true,
		SampleIDAll: true, MonotonicClock: true,
		Watermark: uint32(s.pages * os.Getpagesize() / 2),
	}, -1, cpu, -1, 0)
	if err != nil {
		return fmt.Errorf("listen to processes on CPU %d: %w", cpu, err)
	}
	ring, err := event.Map(s.pages)
	if err != nil {
		return errors.Join(fmt.Errorf("listen to processes on CPU %d: %w", cpu, err), event.Close())
	}
	old, again := s.cpus[cpu]
	s.cpus[cpu] = listener{event, ring}
	if again {
		return s.end(old)
	}
	return nil
}

// end keeps what a listener still has and closes it.
func (s *Sideband) end(l listener) error {
	_, err := l.ring.Read(s.keep)
	return errors.Join(err, l.event.Close())
}

// FollowCPUs listens on CPUs that came online, anew on those that were offline
// for a moment, and no more on those that are offline.
func (s *Sideband) FollowCPUs(online []int) error {
	if s.pages == 0 {
		return nil
	}
	for cpu, l := range s.cpus {
		if slices.Contains(online, cpu) {
			continue
		}
		delete(s.cpus, cpu)
		if err := s.end(l); err != nil {
			return err
		}
	}
	for _, cpu := range online {
		if l, ok := s.cpus[cpu]; ok && !l.event.Stalled() {
			continue
		}
		if err := s.AddCPU(cpu); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	return nil
}

// FDs returns the descriptors, in no order, that poll as readable when a ring
// is half full. To tell of every record would cost whoever caused it an
// interrupt each, on a machine that may run a thousand forks a second; so
// whoever wants to hear of a record soon must drain now and then.
func (s *Sideband) FDs() []int {
	fds := make([]int, 0, len(s.cpus))
	for _, l := range s.cpus {
		fds = append(fds, l.event.FD())
	}
	return fds
}

// Drain hands everything that happened before the call to fn, in order of
// time across the CPUs. lost is the number of records that the kernel
// dropped; fn gets a [perfevent.Lost] for those too.
func (s *Sideband) Drain(fn func(perfevent.Record)) (lost uint64, err error) {
	// While one ring is read others are written, so only what was recorded
	// before the first was read can be put in order now.
	until := monotonic.Now()
	for cpu, l := range s.cpus {
		n, rerr := l.ring.Read(s.keep)
		lost += n
		if rerr != nil {
			err = errors.Join(err, fmt.Errorf("sideband of CPU %d: %w", cpu, rerr))
		}
	}
	slices.SortStableFunc(s.pending, func(a, b perfevent.Record) int { return cmp.Compare(a.When(), b.When()) })
	n := 0
	for n < len(s.pending) && s.pending[n].When() <= until {
		fn(s.pending[n])
		n++
	}
	s.pending = slices.Delete(s.pending, 0, n)
	return lost, err
}

// keep notes a record until it can be put in order.
func (s *Sideband) keep(r perfevent.Record) { s.pending = append(s.pending, r) }

// Close stops listening.
func (s *Sideband) Close() error {
	var err error
	for _, l := range s.cpus {
		err = errors.Join(err, l.event.Close())
	}
	s.cpus = nil
	return err
}
