package perfring

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
)

// Sizes of a CPU's ring, in bytes. The usual one is the limit of a user without privileges for each CPU, which all of the
// user's rings share: sysctl kernel.perf_event_mlock_kb, without the page of the header. It has room for 30 samples.
// The limit on locked memory, RLIMIT_MEMLOCK, allows more: often 8 MiB in all.
const (
	largestRing  = 4 << 20
	usualRing    = 512 << 10
	smallestRing = 64 << 10
	// ringsOfAll limits the rings of all CPUs, unless they have the usual size.
	ringsOfAll = 64 << 20
)

// ringSize returns the size of the ring of one of several CPUs, if this process may lock so much memory in all.
func ringSize(cpus int, locked uint64) int {
	size := largestRing
	for size > usualRing && (uint64(cpus)*uint64(size-usualRing) > locked || cpus*size > ringsOfAll) {
		size /= 2
	}
	return size
}

// lockedMemory returns RLIMIT_MEMLOCK in bytes, 0 if unknown.
func lockedMemory() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return 0
	}
	return limit.Cur
}

// events are the perf events of a target: one for each thread and CPU, which the thread's new threads and children
// inherit. All events of a CPU share a ring.
type events struct {
	attr    perfevent.Attr
	has     func(cpu int) bool
	inherit bool
	// threadsOnly is whether children do not inherit the events, and strangers whether they do although they do not belong
	// to the target, since the kernel is too old.
	threadsOnly, strangers bool
	open                   []*perfevent.Event
	rings                  map[int]ring
	// threads has the processes of the threads with events of their own, and owners the threads by the IDs of these events.
	threads map[int]int
	owners  map[uint64]int
	// found is the number of threads at the start. limit is the number of events that may be open, and without the number
	// of threads that have none because of it. refused has the children whose privileges forbid events.
	found, limit, without int
	refused               map[int]bool
	// ringSize is the size of a ring, if the limits allow that, and smallest that of the smallest, in bytes.
	ringSize, smallest int
}

// ring is the ring of a CPU.
type ring struct {
	*perfevent.Ring
	owner *perfevent.Event
}

// openEvents opens events on the CPUs that has accepts. They sample at once: a disabled event would not report mappings.
func openEvents(attr perfevent.Attr, has func(cpu int) bool, t target.Target) (_ *events, err error) {
	e := &events{
		attr: attr, has: has, inherit: t.Scope != target.Threads, threadsOnly: t.Scope != target.Threads && !t.Children, limit: maxEvents(),
		rings: map[int]ring{}, threads: map[int]int{}, owners: map[uint64]int{}, refused: map[int]bool{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	cpus, err := perfevent.OnlineCPUs()
	if err != nil {
		return nil, err
	}
	cpus = slices.DeleteFunc(cpus, func(cpu int) bool { return !has(cpu) })
	e.ringSize = ringSize(len(cpus), lockedMemory())
	// A thread that starts between the list and the open of its parent's events has none, but the next list has it. One that
	// starts later inherits them, and if it is in the next list, gets events of its own, too: see [rings.isDouble].
	seen := map[int]bool{}
	for {
		threads, err := threadsOf(t)
		if err != nil {
			return nil, err
		}
		fresh := slices.DeleteFunc(threads, func(one task) bool { return seen[one.tid] })
		if len(fresh) == 0 {
			break
		}
		if len(e.open)+len(fresh)*len(cpus) > e.limit {
			busiestFirst(fresh)
		}
		for _, one := range fresh {
			seen[one.tid] = true
			added, err := e.addThread(one, cpus)
			if err != nil {
				return nil, err
			}
			if added {
				e.threads[one.tid] = one.pid
			}
		}
	}
	e.found = len(seen)
	switch {
	case len(e.rings) == 0 && e.without > 0:
		return nil, fmt.Errorf("perf events for %d CPUs: fulgur may open %d: raise the limit of open files with ulimit -n", len(cpus), e.limit)
	case len(e.rings) == 0:
		return nil, fmt.Errorf("%s: %w", t, target.ErrNotFound)
	}
	return e, nil
}

// maxEvents returns the number of events that may be open. The files that processes map take up to half of the files that
// this process may open, and others some more.
func maxEvents() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return math.MaxInt
	}
	return int(min(files.Cur, math.MaxInt32) / 8 * 3)
}

// task is a thread of a process.
type task struct {
	tid, pid int
	// named is whether the target names it, or its process.
	named bool
}

// threadsOf returns the current threads of a target.
func threadsOf(t target.Target) (threads []task, err error) {
	if t.Scope == target.Threads {
		for _, tid := range t.TIDs {
			if status, err := procfs.Process(tid).Status(); err == nil { // otherwise it is gone
				threads = append(threads, task{tid, status.TGID, true})
			}
		}
		return threads, nil
	}
	pids := slices.Clone(t.PIDs)
	if t.Children {
		descendants, err := target.Descendants(t.PIDs)
		if err != nil {
			return nil, err
		}
		pids = append(pids, descendants...)
	}
	for i, pid := range pids {
		tids, err := procfs.Threads(pid)
		if err != nil {
			continue // it is gone
		}
		for _, tid := range tids {
			threads = append(threads, task{tid, pid, i < len(t.PIDs)})
		}
	}
	return threads, nil
}

// busiestFirst sorts threads by the CPU time that they have used.
func busiestFirst(threads []task) {
	used := map[int]uint64{}
	for _, one := range threads {
		if stat, err := procfs.Thread(one.pid, one.tid).Stat(); err == nil {
			used[one.tid] = stat.CPU
		}
	}
	slices.SortStableFunc(threads, func(a, b task) int { return cmp.Compare(used[b.tid], used[a.tid]) })
}

// addThread opens the events of a thread on CPUs. It reports false if there are too many already, or if it is a thread of a
// child with other privileges.
func (e *events) addThread(t task, cpus []int) (added bool, err error) {
	if e.refused[t.pid] {
		return false, nil
	}
	if len(e.open)+len(cpus) > e.limit {
		e.without++
		return false, nil
	}
	for _, cpu := range cpus {
		err := e.add(t.tid, cpu)
		if errors.Is(err, unix.EACCES) && !t.named {
			e.refused[t.pid] = true
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// add opens the event of a thread on a CPU. It does nothing if the thread has exited or the CPU is offline.
func (e *events) add(tid, cpu int) error {
	attr := e.attr
	attr.Inherit, attr.InheritThread = e.inherit, e.threadsOnly
	event, err := perfevent.Open(attr, tid, cpu)
	if errors.Is(err, unix.EINVAL) && attr.InheritThread {
		attr.InheritThread, e.threadsOnly, e.strangers = false, false, true
		event, err = perfevent.Open(attr, tid, cpu)
	}
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
	mapped, size, err := mapRing(event, e.ringSize)
	if err != nil {
		return err
	}
	e.smallest = min(cmp.Or(e.smallest, size), size)
	e.rings[cpu] = ring{mapped, event}
	return nil
}

// mapRing maps as large a ring as the user's limits allow, at most of the given size, and returns its size in bytes.
func mapRing(event *perfevent.Event, most int) (ring *perfevent.Ring, size int, err error) {
	for size = most; size >= smallestRing; size /= 2 {
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
		if _, ok := e.rings[cpu]; ok || !e.has(cpu) {
			continue
		}
		threads, err := threadsOf(t)
		if err != nil {
			return err
		}
		for _, one := range threads {
			// Those that have inherited events stay without events of their own for [rings.isDouble]: they have none elsewhere.
			if _, err := e.addThread(one, []int{cpu}); err != nil {
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
