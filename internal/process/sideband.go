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

// Sideband receives the mapping, fork, exec and exit records of all processes, from a
// dummy software event and its ring on each CPU. The zero Sideband listens on no CPU. It
// is not safe for concurrent use.
type Sideband struct {
	pages   int
	cgroups bool
	cpus    map[int]listener
	pending []perfevent.Record // read, but not yet in order
}

type listener struct {
	event *perfevent.Event
	ring  *perfevent.Ring
}

// OpenSideband starts to listen on the given CPUs, each with a ring of pages data pages (a
// power of two). CPUs that have gone offline are skipped. If cgroups is set, it also receives
// [perfevent.Cgroup] records, where the kernel has them.
func OpenSideband(cpus []int, pages int, cgroups bool) (*Sideband, error) {
	s := &Sideband{pages: pages, cgroups: cgroups, cpus: map[int]listener{}}
	for _, cpu := range cpus {
		if err := s.AddCPU(cpu); err != nil && !errors.Is(err, unix.ENODEV) {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// AddCPU starts to listen on cpu, which came online. It also replaces an existing
// listener, because the kernel stops the events of a CPU that goes offline.
func (s *Sideband) AddCPU(cpu int) error {
	event, err := perfevent.Open(perfevent.Attr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY,
		Mmap2: true, Comm: true, CommExec: true, Task: true, Cgroup: s.cgroups,
		SampleIDAll: true, MonotonicClock: true,
		Watermark: uint32(s.pages * os.Getpagesize() / 2),
	}, -1, cpu)
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

// end drains a listener and closes it.
func (s *Sideband) end(l listener) error {
	_, err := l.ring.Read(s.keep)
	return errors.Join(err, l.event.Close())
}

// FollowCPUs starts to listen on CPUs that came online, restarts CPUs that were briefly
// offline, and stops on CPUs that are offline.
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

// FDs returns descriptors, in ascending order, that poll as readable when a ring is
// half full. A wake-up for every record would cost an interrupt each, on a machine that
// may fork a thousand times a second. To see records sooner, call Drain regularly.
func (s *Sideband) FDs() []int {
	fds := make([]int, 0, len(s.cpus))
	for _, l := range s.cpus {
		fds = append(fds, l.event.FD())
	}
	slices.Sort(fds) // the same each time, so that a set of them need not be changed
	return fds
}

// Drain calls fn with all records from before the call, in order of time across the CPUs.
// lost is the number of records that the kernel dropped; fn receives a [perfevent.Lost]
// for those too.
func (s *Sideband) Drain(fn func(perfevent.Record)) (lost uint64, err error) {
	// While one ring is read, others are written. So only records from before the first
	// read can be ordered now.
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

// keep stores a record until it can be ordered.
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
