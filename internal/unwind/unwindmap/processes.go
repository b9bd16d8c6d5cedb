package unwindmap

import (
	"errors"
	"slices"
	"time"

	"fulgur/internal/process"
)

// patience is how long processes wait for a file's table at most, from when it was first
// wanted. They are then walked without it until it is there: a file may take for ever to
// compile. It is the file's, not the process's: a process that maps more files, or asks
// for more addresses, does not begin to wait anew.
const patience = 5 * time.Second

// change gives a process a layout for what it has mapped now, as soon as all
// tables for it are there: a walk that finds half of them is no better than one
// by frame pointers, which says what it is.
func (l *Loader) change(p *proc, maps []process.Mapping) {
	p.sources = maps
	l.try(p)
}

// try gives a process a layout if it need not wait.
func (l *Loader) try(p *proc) {
	w := l.newWait(p)
	if w.held > 0 {
		l.withdraw(p)
		return
	}
	if next := l.newLayout(p.sources, p.layout); next != nil {
		l.install(p, next)
		return
	}
	if !p.late {
		p.late = true
		l.stats.Processes++
	}
	l.starving = append(l.starving, w)
	p.wait = w
	l.withdraw(p)
}

// newWait has a process wait for the tables of its files that are not there.
func (l *Loader) newWait(p *proc) *wait {
	w := &wait{proc: p}
	p.wait = nil
	for _, m := range p.sources {
		f := l.file(m)
		if f == nil || f.done {
			continue
		}
		if n := len(f.waiting); n > 0 && f.waiting[n-1] == w {
			continue // it maps the file more than once
		}
		f.waiting = append(f.waiting, w)
		if !f.late {
			w.held++
		}
		p.wait = w
	}
	return w
}

// made tells those that wait for a file that it is there.
func (l *Loader) made(f *file) {
	waiting := f.waiting
	f.waiting = nil
	l.letGo(f, waiting)
}

// letGo gives layouts to those that waited for a file and need not any more, because it is
// there or late.
func (l *Loader) letGo(f *file, waiting []*wait) {
	held := !f.late
	f.late = true
	for _, w := range waiting {
		if held {
			w.held--
		}
		if w.held == 0 && w.proc.wait == w {
			l.try(w.proc)
		}
	}
}

// Hurry gives layouts to processes that have waited for a table for too long, as
// [Loader.Settled] does.
func (l *Loader) Hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hurry()
}

// hurry gives layouts to those that have waited for a file for too long.
func (l *Loader) hurry() {
	for len(l.pending) > 0 {
		f := l.pending[0]
		if !f.done && time.Since(f.since) <= patience {
			return
		}
		l.pending = l.pending[1:]
		if f.done {
			continue
		}
		l.letGo(f, slices.Clone(f.waiting)) // which grows by those that go on waiting for it
	}
}

// feed gives layouts to those that had no room for one, if there is some now.
func (l *Loader) feed() {
	starving := l.starving
	l.starving = nil
	for _, w := range starving {
		if w.proc.wait == w {
			l.try(w.proc)
		}
	}
}

// withdraw takes away a process's layout if it is not true any more, while there
// is no other.
func (l *Loader) withdraw(p *proc) {
	if p.layout == nil || extends(p.sources, p.layout.sources) {
		return
	}
	if !p.past {
		if err := l.kernel.deleteProcess(p.pid); err != nil {
			l.fail(err)
		}
	}
	l.leave(p)
}

// install has the kernel side walk p's stacks by another layout.
func (l *Loader) install(p *proc, next *layout) {
	if next.cut && !p.cut {
		p.cut = true
		l.stats.Cut++
	}
	var err error
	if !p.past {
		err = l.kernel.putProcess(p.pid, entry{Image: p.image, Layout: next.word})
	}
	l.leave(p) // not before: a child may have got it until now
	l.join(p, next)
	if err == nil {
		return
	}
	l.stats.Processes++
	if !errors.Is(err, errFull) {
		l.fail(err)
	}
	l.drop(p.pid)
}
