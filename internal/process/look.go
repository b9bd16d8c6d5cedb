package process

import (
	"log/slog"
	"time"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/procfs"
)

// The kernel sends no record when mremap(2) moves code, and one for only one of several processes
// that share their memory: children of vfork(2), and of clone(2) with CLONE_VM. So the table looks at
// a running process again if a stack has an address without a known mapping, or an address in memory
// without a file that may hold a copy of a file's code (see copy.go).

// Limits on looks. A look that finds nothing doubles the time to the next one, because a broken stack
// has addresses that were never code.
const (
	lookRest    = time.Second
	maxLookRest = 64 * time.Second
	// looksShare and looksPause limit the looks at all processes: after one, the table rests for
	// looksShare times as long as it took, and at least for looksPause. looksBurst is the rest that
	// it may owe.
	looksShare = 50
	looksPause = 100 * time.Millisecond
	looksBurst = time.Second
)

// looks is the state of the looks at an image.
type looks struct {
	last uint64 // time of the last one, 0 if none (CLOCK_MONOTONIC, ns)
	next uint64 // time from which on there may be another one
	rest time.Duration
	// doubtful means that a mapping seemed to be a copy of a file's code, but was not yet.
	doubtful bool
	// again is the address of much memory that was made executable again since the last look, as after
	// code was copied to it, or 0.
	again uint64
}

// limiter limits how often and how long the table looks at processes.
type limiter struct{ free uint64 }

// admits reports whether there may be a look now.
func (l *limiter) admits(now uint64) bool { return l.free <= now }

// took notes a look.
func (l *limiter) took(from, until uint64) {
	l.free = max(l.free, from-uint64(looksBurst)) + max(looksShare*(until-from), uint64(looksPause))
}

// mayHoldCode reports whether a process can map code at an address. Broken stacks have many addresses
// where it cannot.
func mayHoldCode(addr uint64) bool { return addr >= 1<<12 && addr < 1<<56 }

// unchecked reports whether a look has not decided yet whether m is a copy of a file's code.
func (i *image) unchecked(m mapping) bool {
	return m.kind == KindAnon && (i.looks.last == 0 || m.from > i.looks.last || i.looks.doubtful || m.holds(i.looks.again))
}

// unclear reports whether any mapping is unchecked.
func (i *image) unclear() bool {
	anyIn := func(maps space) bool {
		for m := range maps.All() {
			if i.unchecked(m) {
				return true
			}
		}
		return false
	}
	return anyIn(i.live) || i.base != nil && anyIn(i.base.maps)
}

// look reads the mappings of process pid again, if i is its current image and it was not read lately.
// It reports whether i has changed.
func (t *Table) look(pid int, i *image) (changed bool) {
	now := monotonic.Now()
	if t.sync == nil || t.images[pid] != i || i.base != nil && !i.base.read || now < i.looks.next || !t.looks.admits(now) {
		return false
	}
	maps, err := safeopen.Ask(t.files.budget, procRoot(pid), func(*safeopen.Request) ([]procfs.Map, error) {
		return readMapsBy(procfs.Task.AllMaps, pid)
	})
	t.sync()
	if current := t.images[pid] == i; err == nil && current {
		changed = t.compare(pid, i, maps, now)
	}
	until := monotonic.Now()
	t.looks.took(now, until)
	if i.looks.rest = min(2*i.looks.rest, maxLookRest); changed || i.looks.rest == 0 {
		i.looks.rest = lookRest
	}
	i.looks.next = until + uint64(max(i.looks.rest, looksShare*time.Duration(until-now)))
	if changed {
		slog.Debug("code without a record", "pid", pid)
		t.replaced(pid)
		t.mapped(pid)
	}
	return changed
}

// compare updates i, the image of process pid, to the mappings that /proc showed at the given time.
// It reports whether there was a difference.
func (t *Table) compare(pid int, i *image, maps []procfs.Map, at uint64) (changed bool) {
	before := i.looks
	since := max(before.last, i.from) // code that no record reported was not there
	i.looks.last, i.looks.doubtful, i.looks.again = at, false, 0
	known := i.mappings()
	for _, m := range maps {
		if !m.Executable {
			continue
		}
		if mapped, dump := t.mapping(m, 0, pid, i.parent); i.learn(mapped, known, since, at) {
			i.marked = mark(i.marked, dump)
			changed = true
		}
	}
	t.files.openQueued()
	copies, doubtful := t.copiesIn(pid, i, maps, before)
	i.looks.doubtful = doubtful
	for _, m := range copies {
		i.insert(m)
	}
	return changed || len(copies) > 0
}

// learn inserts the parts of m, a mapping that exists at the given time, that differ from the known
// mappings. Where none is known, the mapping is valid from since on. It reports whether there are any.
func (i *image) learn(m mapping, known space, since, at uint64) (learned bool) {
	add := func(part mapping, from uint64) {
		if part.start < part.limit {
			part.from = from
			i.insert(part)
			learned = true
		}
	}
	for k := range known.Over(m.start, m.limit) {
		add(m.within(m.start, k.start), since)
		if both := m.within(k.start, k.limit); !k.shows(both) && k.from < at {
			add(both, at)
		}
		m = m.within(k.limit, m.limit)
	}
	add(m, since)
	return learned
}

// shows reports whether /proc shows m, where both overlap, as o. Unlike a record, /proc does not
// show a file's generation.
func (m mapping) shows(o mapping) bool {
	if m.copied && o.kind == KindAnon {
		return true
	}
	if m.kind != o.kind || m.file == nil || o.file == nil {
		return m.kind == o.kind && m.file == o.file
	}
	a, b := m.file.Key, o.file.Key
	return a.Maj == b.Maj && a.Min == b.Min && a.Ino == b.Ino && m.start-m.off == o.start-o.off
}
