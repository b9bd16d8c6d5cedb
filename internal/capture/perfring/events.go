package perfring

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
)

// Sizes of a CPU's ring, in bytes. The usual one is what a user without privileges may lock for each CPU, by default
// (sysctl kernel.perf_event_mlock_kb), without the page of the header. All rings of the user share this limit.
const (
	usualRing    = 512 << 10
	smallestRing = 64 << 10
)

// events are the perf events of a target: one for each thread and CPU, which the thread's new threads and children
// inherit. All events of a CPU share a ring.
type events struct {
	attr    perfevent.Attr
	inherit bool
	open    []*perfevent.Event
	rings   map[int]ring
	// threads has the threads with events of their own. owners has the thread of each of these events, by the event's ID.
	threads map[int]bool
	owners  map[uint64]int
	// smallest is the size of the smallest ring, in bytes.
	smallest int
}

// ring is the ring of a CPU.
type ring struct {
	*perfevent.Ring
	owner *perfevent.Event
}

// openEvents opens events, which sample at once: a disabled event would not report mappings.
func openEvents(attr perfevent.Attr, t target.Target) (_ *events, err error) {
	e := &events{attr: attr, inherit: t.Scope != target.Threads, rings: map[int]ring{}, threads: map[int]bool{}, owners: map[uint64]int{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	cpus, err := perfevent.OnlineCPUs()
	if err != nil {
		return nil, err
	}
	if len(t.CPUs) > 0 {
		cpus = slices.DeleteFunc(cpus, func(cpu int) bool { return !slices.Contains(t.CPUs, cpu) })
	}
	// If a thread starts after it could be listed, but before its parent's events are opened, it has no events until the
	// next round lists it. If it starts later, it inherits the events, and if the next round lists it, it also gets events
	// of its own: see [Source.isDouble].
	for {
		tids, err := threadsOf(t)
		if err != nil {
			return nil, err
		}
		fresh := slices.DeleteFunc(tids, func(tid int) bool { return e.threads[tid] })
		if len(fresh) == 0 {
			break
		}
		for _, tid := range fresh {
			e.threads[tid] = true
			for _, cpu := range cpus {
				if err := e.add(tid, cpu); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(e.rings) == 0 {
		return nil, fmt.Errorf("%s: %w", t, target.ErrNotFound)
	}
	return e, nil
}

// threadsOf returns the current threads of a target.
func threadsOf(t target.Target) (tids []int, err error) {
	if t.Scope == target.Threads {
		return slices.Clone(t.TIDs), nil
	}
	pids := slices.Clone(t.PIDs)
	if t.Children {
		descendants, err := target.Descendants(t.PIDs)
		if err != nil {
			return nil, err
		}
		pids = append(pids, descendants...)
	}
	for _, pid := range pids {
		more, err := procfs.Threads(pid)
		if err != nil {
			continue // it is gone
		}
		tids = append(tids, more...)
	}
	return tids, nil
}

// add opens the event of a thread on a CPU. It does nothing if the thread has exited or the CPU is offline.
func (e *events) add(tid, cpu int) error {
	attr := e.attr
	attr.Inherit = e.inherit
	event, err := perfevent.Open(attr, tid, cpu)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	e.open = append(e.open, event)
	id, err := event.ID()
	if err != nil {
		return err
	}
	e.owners[id] = tid
	if to, ok := e.rings[cpu]; ok {
		return event.SendTo(to.owner)
	}
	mapped, size, err := mapRing(event)
	if err != nil {
		return err
	}
	e.smallest = min(cmp.Or(e.smallest, size), size)
	e.rings[cpu] = ring{mapped, event}
	return nil
}

// mapRing maps as large a ring as the user's limit on locked memory allows, and returns its size in bytes.
func mapRing(event *perfevent.Event) (ring *perfevent.Ring, size int, err error) {
	for size = usualRing; size >= smallestRing; size /= 2 {
		ring, err = event.Map(max(size/os.Getpagesize(), 1))
		if !errors.Is(err, perfevent.ErrLockedMemory) {
			return ring, size, err
		}
	}
	return nil, 0, err
}

// disable stops sampling.
func (e *events) disable() error { return e.each((*perfevent.Event).Disable) }

// total returns what the events have counted, even in the kernel, where they do not sample: for clocks, all CPU time in ns.
func (e *events) total() (sum uint64, err error) {
	err = e.each(func(event *perfevent.Event) error {
		r, err := event.Read()
		sum += r.Count
		return err
	})
	return sum, err
}

func (e *events) each(f func(*perfevent.Event) error) error {
	var errs []error
	for _, event := range e.open {
		errs = append(errs, f(event))
	}
	return errors.Join(errs...)
}

// read calls fn for all records in the rings, and returns the number of those that the kernel dropped.
func (e *events) read(fn func(perfevent.Record)) (lost uint64, err error) {
	for _, cpu := range slices.Sorted(maps.Keys(e.rings)) {
		n, rerr := e.rings[cpu].Read(fn)
		lost += n
		if rerr != nil {
			err = cmp.Or(err, fmt.Errorf("ring of CPU %d: %w", cpu, rerr))
		}
	}
	return lost, err
}

// follow opens events on CPUs that have come online, for the current threads.
func (e *events) follow(online []int, t target.Target) error {
	for _, cpu := range online {
		if _, ok := e.rings[cpu]; ok || len(t.CPUs) > 0 && !slices.Contains(t.CPUs, cpu) {
			continue
		}
		tids, err := threadsOf(t)
		if err != nil {
			return err
		}
		for _, tid := range tids {
			if err := e.add(tid, cpu); err != nil {
				return err
			}
		}
	}
	return nil
}

// close closes the events. e may be nil.
func (e *events) close() error {
	if e == nil {
		return nil
	}
	err := e.each((*perfevent.Event).Close)
	e.open = nil
	return err
}
