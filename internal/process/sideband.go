package process

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
)

// Sideband receives the mapping, fork, exec and exit records of all processes, from dummy
// software events and their rings on each CPU. The zero Sideband listens on no CPU. It
// is not safe for concurrent use.
type Sideband struct {
	pages   int
	cgroups bool
	cpus    map[int]listener
	fds     []int // of cpus, sorted; nil if they have changed
	stalls  perfevent.Stalls
	pending []perfevent.Record // read, but not yet in order
}

// listener receives the records of a CPU. Mappings have a ring of their own: a process that
// maps code as fast as it can fills it, but crowds out no names, forks, execs and exits.
type listener struct{ mappings, tasks channel }

// channel is an event and its ring.
type channel struct {
	event *perfevent.Event
	ring  *perfevent.Ring
}

// OpenSideband starts to listen on the given CPUs, each with a ring of pages data pages (a
// power of two, at least 2) for mappings, and half of it for other records. CPUs that have gone
// offline are skipped. If cgroups is set, it also receives [perfevent.Cgroup] records, where the
// kernel has them.
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
	l, err := openListener(cpu, s.pages, s.cgroups)
	if err != nil {
		return fmt.Errorf("listen to processes on CPU %d: %w", cpu, err)
	}
	old, again := s.cpus[cpu]
	s.cpus[cpu], s.fds = l, nil
	if again {
		return s.end(old)
	}
	return nil
}

func openListener(cpu, pages int, cgroups bool) (l listener, err error) {
	if l.tasks, err = openChannel(cpu, pages/2, perfevent.Attr{Comm: true, CommExec: true, Task: true, Cgroup: cgroups}); err != nil {
		return listener{}, err
	}
	if l.mappings, err = openChannel(cpu, pages, perfevent.Attr{Mmap2: true}); err != nil {
		return listener{}, errors.Join(err, l.tasks.event.Close())
	}
	return l, nil
}

// openChannel opens an event for the records that attr requests.
func openChannel(cpu, pages int, attr perfevent.Attr) (channel, error) {
	attr.Type, attr.Config = unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_DUMMY
	attr.SampleIDAll, attr.MonotonicClock = true, true
	attr.Watermark = uint32(pages * os.Getpagesize() / 2)
	event, err := perfevent.Open(attr, -1, cpu)
	if err != nil {
		return channel{}, err
	}
	ring, err := event.Map(pages)
	if err != nil {
		return channel{}, errors.Join(err, event.Close())
	}
	return channel{event, ring}, nil
}

func (l listener) close() error {
	return errors.Join(l.mappings.event.Close(), l.tasks.event.Close())
}

// read stores the records of l, and returns the number of records that the kernel dropped.
func (s *Sideband) read(l listener) (lost uint64, err error) {
	lost, err = l.tasks.ring.Read(s.keep)
	n, mappingsErr := l.mappings.ring.Read(s.keepMappings)
	return lost + n, errors.Join(err, mappingsErr)
}

// keep stores a record until it can be ordered.
func (s *Sideband) keep(r perfevent.Record) { s.pending = append(s.pending, r) }

// keepMappings is like keep, but drops forks and exits. An event that requests mappings also
// receives those, see perf_event_task_match in the kernel's kernel/events/core.c.
func (s *Sideband) keepMappings(r perfevent.Record) {
	switch r.(type) {
	case perfevent.Fork, perfevent.Exit:
	default:
		s.keep(r)
	}
}

// end drains a listener and closes it.
func (s *Sideband) end(l listener) error {
	_, err := s.read(l)
	return errors.Join(err, l.close())
}

// stalled reports whether the kernel has stopped the events of cpu, because it went offline. Both
// stop then, so it looks at one.
func (s *Sideband) stalled(cpu int) bool { return s.cpus[cpu].tasks.event.Stalled() }

// FollowCPUs starts to listen on CPUs that came online, restarts CPUs that were briefly
// offline, and stops on CPUs that are offline. With many CPUs, it may take several calls to
// find a CPU that was briefly offline.
func (s *Sideband) FollowCPUs(online []int) error {
	if s.pages == 0 {
		return nil
	}
	for cpu, l := range s.cpus {
		if slices.Contains(online, cpu) {
			continue
		}
		delete(s.cpus, cpu)
		s.fds = nil
		if err := s.end(l); err != nil {
			return err
		}
	}
	stalled := s.stalls.Find(slices.Sorted(maps.Keys(s.cpus)), s.stalled)
	for _, cpu := range online {
		if _, ok := s.cpus[cpu]; ok && !slices.Contains(stalled, cpu) {
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
// may fork a thousand times a second. To see records sooner, call Drain regularly. The caller
// must not modify the slice.
func (s *Sideband) FDs() []int {
	if s.fds == nil {
		s.fds = make([]int, 0, 2*len(s.cpus))
		for _, l := range s.cpus {
			s.fds = append(s.fds, l.mappings.event.FD(), l.tasks.event.FD())
		}
		slices.Sort(s.fds) // the same each time, so that a set of them need not be changed
	}
	return slices.Clip(s.fds)
}

// Drain calls fn with all records from before the call, in order of time across the CPUs.
// lost is the number of records that the kernel dropped; fn receives a [perfevent.Lost]
// for those too.
func (s *Sideband) Drain(fn func(perfevent.Record)) (lost uint64, err error) {
	// While one ring is read, others are written. So only records from before the first
	// read can be ordered now.
	until := monotonic.Now()
	for cpu, l := range s.cpus {
		n, rerr := s.read(l)
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

// Close stops listening.
func (s *Sideband) Close() error {
	var err error
	for _, l := range s.cpus {
		err = errors.Join(err, l.close())
	}
	s.cpus, s.fds = nil, nil
	return err
}
