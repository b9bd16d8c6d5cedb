package unwinding

import (
	"iter"
	"time"
)

// backlog is which processes are to be laid out.
type backlog struct {
	// dirty are those that mapped code since they were last laid out.
	dirty map[int]bool
	// wanted are those that the kernel side asks for, and their images.
	wanted map[int]uint64
	pace   pace
}

func newBacklog() backlog {
	return backlog{dirty: map[int]bool{}, wanted: map[int]uint64{}, pace: pace{}}
}

// task is a process to be laid out.
type task struct {
	pid int
	// asked says that the kernel side asks for the process, which runs image; else the
	// process has changed.
	asked bool
	image uint64
}

// mapped notes that a process mapped code.
func (b *backlog) mapped(pid int) { b.dirty[pid] = true }

// asked notes that the kernel side asks for a process.
func (b *backlog) asked(pid int, image uint64) { b.wanted[pid] = image }

// forked notes that a process has a child, which maps what it does.
func (b *backlog) forked(parent, child int) {
	if b.dirty[parent] {
		b.dirty[child] = true
	}
}

// forget forgets what is to be done about a process.
func (b *backlog) forget(pid int) {
	delete(b.dirty, pid)
	delete(b.wanted, pid)
	delete(b.pace, pid)
}

// retryEvery is how long a process rests whose mappings could not be read.
const retryEvery = 20 * time.Millisecond

// postpone notes again what was taken out, for a later time.
func (b *backlog) postpone(t task, now time.Time) {
	if t.asked {
		b.wanted[t.pid] = t.image
	} else {
		b.dirty[t.pid] = true
	}
	b.pace[t.pid] = now.Add(retryEvery)
}

// due takes those out that may be laid out now: first those that are asked for. What is
// noted about one that was taken out is for the next time.
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

// manyMappings is the number from which on a process's mappings are not told to
// the kernel side as often as they change, or are asked for, but every
// restPerMapping for each.
const (
	manyMappings   = 512
	restPerMapping = 20 * time.Microsecond
)

// pace is when a process with many mappings may be laid out again.
type pace map[int]time.Time

// rests reports whether it is too early for that.
func (p pace) rests(pid int, now time.Time) bool { return now.Before(p[pid]) }

// took notes that a process of n mappings was laid out.
func (p pace) took(pid, n int, now time.Time) {
	if n > manyMappings {
		p[pid] = now.Add(time.Duration(n) * restPerMapping)
	} else {
		delete(p, pid)
	}
}
