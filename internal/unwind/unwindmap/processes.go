package unwindmap

import (
	"errors"
	"slices"
	"time"

	"fulgur/internal/process"
)

// patience is the maximum time that processes wait for a file's table, from when it was
// first wanted. After that they are walked without it until it is available: compiling a
// file may take forever. The time is counted per file, so a process that maps or requests
// more files does not wait longer for this one.
const patience = 5 * time.Second

// change gives a process a layout for its current mappings, as soon as all their tables
// are available. A walk with half of the tables is no better than one by frame pointers,
// which is at least labeled as such.
func (l *Loader) change(p *proc, maps []process.Mapping) {
	p.sources = maps
	l.try(p)
}

// try gives a process a layout unless it has to wait.
func (l *Loader) try(p *proc) {
	w := l.newWait(p)
	if w.held > 0 {
		if !l.withdraw(p) {
			l.announce(p)
		}
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

// newWait makes a process wait for the missing tables of its files.
func (l *Loader) newWait(p *proc) *wait {
	w := &wait{proc: p}
	p.wait = nil
	for _, m := range p.sources {
		f := l.file(m)
		if f == nil || f.done {
			continue
		}
		if n := len(f.waiting); n > 0 && f.waiting[n-1] == w {
			continue // the process maps the file more than once
		}
		f.waiting = append(f.waiting, w)
		if !f.late {
			w.held++
		}
		p.wait = w
	}
	return w
}

// made notifies the processes that wait for a file.
func (l *Loader) made(f *file) {
	waiting := f.waiting
	f.waiting = nil
	l.letGo(f, waiting)
}

// letGo gives layouts to processes that no longer need to wait for a file, because it is
// available or late.
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

// Hurry gives layouts to processes that have waited too long for a table.
// [Loader.Settled] does this too.
func (l *Loader) Hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hurry()
}

// hurry implements [Loader.Hurry].
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
		l.letGo(f, slices.Clone(f.waiting)) // it grows by those that keep waiting for the file
	}
}

// feed gives layouts to processes for which there was no room, if there is room now.
func (l *Loader) feed() {
	starving := l.starving
	l.starving = nil
	for _, w := range starving {
		if w.proc.wait == w {
			l.try(w.proc)
		}
	}
}

// withdraw removes a process's layout if it is wrong or useless by now and no new one is
// available. A process may be asked about when it has mapped nothing of its program yet,
// in the middle of an exec: with that layout, all stacks would end at their leaf. It
// reports false if the process keeps its layout.
func (l *Loader) withdraw(p *proc) bool {
	if p.layout == nil {
		return true
	}
	if hasProgram(p.layout.sources) && extends(p.sources, p.layout.sources) {
		return false
	}
	if !p.past {
		if err := l.kernel.deleteProcesses([]int{p.pid}); err != nil {
			l.fail(err)
		}
	}
	l.leave(p)
	return true
}

// announce adds the mappings that wait for tables to a process's layout. Stacks that lead
// through them are walked again when their tables are made; otherwise they would seem to
// lead to no code.
func (l *Loader) announce(p *proc) {
	if p.past || slices.Equal(p.sources, p.layout.sources) {
		return
	}
	if next := l.newLayout(p.sources, p.layout); next != nil {
		l.install(p, next)
	}
}

// hasProgram reports whether any of the mappings is of a file.
func hasProgram(maps []process.Mapping) bool {
	return slices.ContainsFunc(maps, func(m process.Mapping) bool { return m.Kind == process.KindFile })
}

// install makes the kernel walk p's stacks with another layout.
func (l *Loader) install(p *proc, next *layout) {
	if next.cut && !p.cut {
		p.cut = true
		l.stats.Cut++
	}
	var err error
	if !p.past {
		delete(l.stale, p.pid)
		err = l.kernel.putProcess(p.pid, entry{Image: p.image, Layout: next.word})
	}
	l.leave(p) // not earlier: a child may have inherited it until now
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
