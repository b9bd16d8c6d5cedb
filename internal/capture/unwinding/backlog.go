package unwinding

import (
	"iter"
	"time"
)

// backlog holds the processes whose layouts must be updated.
type backlog struct {
	// dirty are the processes that have mapped code since their last layout.
	dirty map[int]bool
	// wanted are the processes that the kernel side requests, with their images.
	wanted map[int]uint64
	pace   pace
}

func newBacklog() backlog {
	return backlog{dirty: map[int]bool{}, wanted: map[int]uint64{}, pace: pace{}}
}

// task is a process whose layout must be updated.
type task struct {
	pid int
	// asked means that the kernel side requests the process, which runs image.
	// Otherwise the process has changed.
	asked bool
	image uint64
}

// mapped notes that a process has mapped code.
func (b *backlog) mapped(pid int) { b.dirty[pid] = true }

// asked notes that the kernel side requests a process.
func (b *backlog) asked(pid int, image uint64) { b.wanted[pid] = image }

// forked notes that a process has a child, which starts with the same mappings.
func (b *backlog) forked(parent, child int) {
	if b.dirty[parent] {
		b.dirty[child] = true
	}
}

// forget drops the tasks of a process.
func (b *backlog) forget(pid int) {
	delete(b.dirty, pid)
	delete(b.wanted, pid)
	delete(b.pace, pid)
}

// retryEvery is the delay before a process is retried whose mappings could not be
// read.
const retryEvery = 20 * time.Millisecond

// postpone puts a task back.
func (b *backlog) postpone(t task, now time.Time) {
	if t.asked {
		b.wanted[t.pid] = t.image
	} else {
		b.dirty[t.pid] = true
	}
	b.pace[t.pid] = now.Add(retryEvery)
}

// due removes the tasks that are due, requested processes first. Tasks that are
// added during the iteration remain for the next one.
func (b *backlog) due(now time.Time) iter.Seq[task] {
	return func(yield func(task) bool) {
		for pid, image := range b.wanted {
			if b.pace.rests(pid, now) {
				continue
			}
			delete(b.wanted, pid)
			delete(b.dirty, pid)
			if !yield(task{pid, true, image}) {
				return
			}
		}
		for pid := range b.dirty {
			if b.pace.rests(pid, now) {
				continue
			}
			delete(b.dirty, pid)
			if !yield(task{pid: pid}) {
				return
			}
		}
	}
}

// Above manyMappings mappings, updates of a process are rate-limited: the minimum
// time between two is restPerMapping for each mapping.
const (
	manyMappings   = 512
	restPerMapping = 20 * time.Microsecond
)

// pace holds the time of the next update of processes with many mappings.
type pace map[int]time.Time

// rests reports whether it is too early for an update.
func (p pace) rests(pid int, now time.Time) bool { return now.Before(p[pid]) }

// took notes the update of a process with n mappings.
func (p pace) took(pid, n int, now time.Time) {
	if n > manyMappings {
		p[pid] = now.Add(time.Duration(n) * restPerMapping)
	} else {
		delete(p, pid)
	}
}
