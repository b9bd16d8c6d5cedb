package unwindmap

import (
	"errors"
	"slices"
	"time"

	"fulgur/internal/process"
)

// tableTimeout is the maximum time that stacks wait for a file's table, counted from its first
// request. After that, stacks end in the file's code until its table is available, because
// making it may take forever.
const tableTimeout = 5 * time.Second

// change gives a process a layout for its current mappings.
func (l *Loader) change(p *proc, maps []process.Mapping) {
	p.sources = maps
	l.update(p)
}

// update gives a process a new layout if its mappings have changed, or tables were made.
func (l *Loader) update(p *proc) {
	if p.layout == nil || !l.isCurrent(p.layout, p.sources) {
		l.renew(p)
	}
}

// renew makes the kernel walk p's stacks with a layout of its current mappings.
func (l *Loader) renew(p *proc) {
	next := p.layout
	if next == nil || !l.isCurrent(next, p.sources) {
		next = l.newLayout(p.sources, p.layout)
	}
	if next != nil {
		l.install(p, next)
		return
	}
	if !p.late {
		p.late = true
		l.stats.Processes++
	}
	if !p.noRoom {
		p.noRoom = true
		l.noRoom = append(l.noRoom, p)
	}
	l.withdraw(p)
}

// need makes the table that the walk of a stack of p lacks at an address.
func (l *Loader) need(p *proc, addr uint64) {
	i := slices.IndexFunc(p.sources, func(m process.Mapping) bool { return m.Start <= addr && addr < m.Limit })
	if i < 0 {
		return
	}
	f := l.file(p.sources[i])
	if f == nil {
		return
	}
	if rows, used := l.uses(p, f); f.done && used && rows == 0 {
		if f.unread == 0 {
			return
		}
		f = l.code(f) // the walk ended in code that is not analyzed
	}
	if !f.done {
		f.waiting[p] = true
		l.enqueue(f, true)
	}
	l.update(p)
}

// uses returns the rows of the mappings of a file in the layout of p, as in [layout].
func (l *Loader) uses(p *proc, f *file) (rows uint32, used bool) {
	if p.layout == nil {
		return 0, false
	}
	rows, used = p.layout.files[f]
	return rows, used
}

// made updates the processes whose stacks need a file, because its table is available or late.
func (l *Loader) made(f *file) {
	for p := range f.waiting {
		if !p.gone {
			l.update(p)
		}
	}
	if f.done {
		f.waiting = nil
	}
}

// Expire makes stacks wait no longer for tables that take too long. [Loader.Settled] does this
// too.
func (l *Loader) Expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
}

// expire implements [Loader.Expire].
func (l *Loader) expire() {
	for len(l.pending) > 0 {
		f := l.pending[0]
		if !f.done && time.Since(f.since) <= tableTimeout {
			return
		}
		l.pending = l.pending[1:]
		if !f.done {
			f.late = true
			l.made(f)
		}
	}
}

// retryNoRoom gives layouts to processes that had no room, if there is room now.
func (l *Loader) retryNoRoom() {
	waiting := l.noRoom
	l.noRoom = nil
	for _, p := range waiting {
		if p.noRoom = false; !p.gone {
			l.update(p)
		}
	}
}

// withdraw removes a process's layout if it has become wrong, or useless: in the middle of an
// exec, a process may be requested before its program is mapped.
func (l *Loader) withdraw(p *proc) {
	if p.layout == nil || hasProgram(p.layout.sources) && extends(p.sources, p.layout.sources) {
		return
	}
	if !p.past {
		if err := l.kernel.deleteProcesses([]int{p.pid}); err != nil {
			l.fail(err)
		}
	}
	l.dropLayout(p)
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
	l.dropLayout(p) // not earlier, because a child may have inherited it until now
	l.setLayout(p, next)
	p.noRoom = false
	if err == nil {
		return
	}
	l.stats.Processes++
	if !errors.Is(err, errFull) {
		l.fail(err)
	}
	l.drop(p.pid)
}
