package unwindmap

import (
	"slices"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/process"
)

// newLayout returns a layout for a process that had old, or nil if there is no
// room.
func (l *Loader) newLayout(maps []process.Mapping, old *layout) *layout {
	if old != nil && old.next != nil && len(old.next.procs) > 0 && same(old.next.sources, maps) {
		return old.next // one that it shared the old one with was here first
	}
	next := &layout{sources: maps, procs: map[*proc]bool{}}
	list := make([]mapping, 0, len(maps)+len(maps)/4)
	used := map[*file]bool{}
	for _, m := range maps {
		where, rule := placement{}, nativeCode.fallback(l.config.mode)
		if f := l.file(m); f != nil {
			used[f] = true
			where, rule = f.placement, f.fallback
		}
		list = appendMappings(list, m, where, rule)
	}
	list, next.cut = bound(joinBare(list), l.config.mappingsEach)
	// An empty one has a place, too, which makes its word its own.
	next.at.n = max(uint32(len(list)), 1)
	var ok bool
	if next.at.start, ok = l.room.take(next.at.n); !ok {
		return nil
	}
	copy(l.kernel.mappings(next.at), list)
	next.word = packLayout(run{next.at.start, uint32(len(list))}, l.saltFor(list, old))
	for f := range used {
		f.layouts[next] = true
		next.files = append(next.files, f)
	}
	l.layouts[next.word] = next
	if old != nil {
		old.next = next
	}
	return next
}

// same reports whether two lists are one.
func same(a, b []process.Mapping) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// saltFor returns the salt of a new layout. It is that of the old one if that was
// only added to, so that the walkers' caches stay warm; of several that add to
// the same one only the first may have it.
func (l *Loader) saltFor(list []mapping, old *layout) uint32 {
	if old != nil && !old.extended && extends(list, l.kernel.mappings(layoutRun(old.word))) {
		old.extended = true
		return layoutSalt(old.word)
	}
	l.salts++
	return salt(l.salts)
}

// salt returns the nth salt. The walker's cache takes the exclusive or of a salt and
// an address, where user space's addresses end at addressBits: what is counted up
// first are the bits above them, or neighbours of equal addresses but for these
// bits would be one to the cache.
func salt(n uint32) uint32 {
	const shared = addressBits - (64 - saltBits) // bits of a salt that addresses have, too
	n &= 1<<saltBits - 1
	return n<<shared&(1<<saltBits-1) | n>>(saltBits-shared)
}

// addressBits is how many bits an address has at most, unless a program asks for
// more.
const addressBits = 48

// extends reports whether list has all of old. Both are sorted.
func extends[T comparable](list, old []T) bool {
	for _, m := range list {
		if len(old) > 0 && old[0] == m {
			old = old[1:]
		}
	}
	return len(old) == 0
}

// joinBare joins neighbours that no table describes.
func joinBare(list []mapping) []mapping {
	joined := list[:0]
	for _, m := range list {
		if n := len(joined); n > 0 && m.Rows == noTable && joined[n-1].Rows == noTable &&
			joined[n-1].End == m.Start && joined[n-1].Fallback == m.Fallback {
			joined[n-1].End = m.End
			continue
		}
		joined = append(joined, m)
	}
	return joined
}

// bound leaves out mappings if there are more than a limit, those without a
// table before others.
func bound(list []mapping, limit int) (_ []mapping, cut bool) {
	excess := len(list) - limit
	if excess <= 0 {
		return list, false
	}
	list = slices.DeleteFunc(list, func(m mapping) bool {
		if excess == 0 || m.Rows != noTable {
			return false
		}
		excess--
		return true
	})
	return list[:min(len(list), limit)], true
}

// leave takes a process away from its layout, which is retired when it was the
// last one.
func (l *Loader) leave(p *proc) {
	old := p.layout
	p.layout = nil
	if old == nil {
		return
	}
	delete(old.procs, p)
	if len(old.procs) == 0 {
		old.retired = true
		l.retired = append(l.retired, retired{old, monotonic.Now()})
	}
}

// join gives a process a layout, which may be a retired one.
func (l *Loader) join(p *proc, next *layout) {
	if next.retired {
		next.retired = false
		l.retired = slices.DeleteFunc(l.retired, func(r retired) bool { return r.layout == next })
	}
	next.procs[p] = true
	p.layout = next
}

// settle waits for programs that run, and frees the layouts that were retired
// before the given time.
func (l *Loader) settle(until uint64) {
	err := l.kernel.wait()
	l.mu.Lock()
	l.settling = false
	if err != nil {
		l.fail(err)
		l.mu.Unlock()
		return
	}
	l.retired = slices.DeleteFunc(l.retired, func(r retired) bool {
		if r.at > until {
			return false
		}
		l.release(r.layout)
		return true
	})
	l.feed()
	words := l.dropUnused()
	l.mu.Unlock()
	for _, r := range words {
		if err := l.pages.free(r); err != nil {
			l.mu.Lock()
			l.fail(err)
			l.mu.Unlock()
		}
	}
}

// release frees a layout's room.
func (l *Loader) release(old *layout) {
	l.room.giveBack(old.at)
	old.next = nil
	delete(l.layouts, old.word)
	for _, f := range old.files {
		delete(f.layouts, old)
		if len(f.layouts) == 0 {
			l.unused = append(l.unused, f)
		}
	}
}

// maxUnused is how many tables are kept that no process needs: the next compiler
// that runs has those of the last one.
const maxUnused = 512

// dropUnused forgets the tables that were not needed for longest, and returns
// their words.
func (l *Loader) dropUnused() []run {
	if len(l.unused) <= maxUnused {
		return nil
	}
	// One that was needed again meanwhile was added again when it was not.
	var words []run
	seen := map[*file]bool{}
	l.unused = slices.DeleteFunc(l.unused, func(f *file) bool {
		drop := len(f.layouts) > 0 || seen[f]
		seen[f] = true
		return drop
	})
	for len(l.unused) > maxUnused/2 {
		f := l.unused[0]
		l.unused = l.unused[1:]
		if !f.done {
			continue // the next time
		}
		delete(l.files, f.key)
		if f.words.n > 0 {
			words = append(words, f.words)
			l.stats.Tables--
			l.stats.Bytes -= 4 * int64(f.words.n)
		}
	}
	return words
}
