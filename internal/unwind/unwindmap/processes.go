package unwindmap

import (
	"errors"
	"slices"
	"time"

	"fulgur/internal/process"
)

// patience is the maximum time that processes wait for a file's table, counted from its first
// request. After that, their stacks end in the file's code until its table is available,
// because compiling a file may take forever. The time is counted per file, so a process does
// not wait longer for a table because it maps or requests more files.
const patience = 5 * time.Second

// change gives a process a layout for its current mappings, as soon as all their tables are
// available. A walk with half of the tables is no better than one by frame pointers, which at
// least is marked as such.
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
	l.stopWaiting(f, waiting)
}

// stopWaiting gives layouts to processes that no longer need to wait for a file, because its
// table is available or late.
func (l *Loader) stopWaiting(f *file, waiting []*wait) {
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
		l.stopWaiting(f, slices.Clone(f.waiting)) // processes that keep waiting are appended to f.waiting
	}
}

// retryStarving gives layouts to processes that had no room, if there is room now.
func (l *Loader) retryStarving() {
	starving := l.starving
	l.starving = nil
	for _, w := range starving {
		if w.proc.wait == w {
			l.try(w.proc)
		}
	}
}

// withdraw removes a process's layout if it has become wrong or useless and no new one is
// available. In the middle of an exec, a process may be requested before its program is
// mapped: with such a layout, all stacks would end at their leaf. withdraw reports false if
// the process keeps its layout.
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

// announce adds the mappings whose tables are pending to a process's layout. Stacks through
// such a mapping are walked again when its table is compiled. Without the mapping, they would
// seem to lead to an address without code.
func (l *Loader) announce(p *proc) {
	if p.past || slices.Equal(p.sources, p.layout.sources) {
		return
	}
	if next := l.newLayout(p.sources, p.layout); next != nil {
		l.install(p, next)
	}
}

// hasProgram reports whether any of the mappings maps a file.
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
	l.leave(p) // not earlier, because a child may have inherited it until now
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
