package unwindmap

import (
	"slices"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/process"
	"fulgur/internal/unwind"
)

// newLayout returns a layout for a process whose layout was old, or nil if there is no
// room.
func (l *Loader) newLayout(maps []process.Mapping, old *layout) *layout {
	if old != nil && old.next != nil && len(old.next.procs) > 0 && same(old.next.sources, maps) && l.isCurrent(old.next, maps) {
		return old.next // another process with the same old layout came first
	}
	next := &layout{sources: maps, files: map[*file]uint32{}, procs: map[*proc]bool{}}
	list := make([]mapping, 0, len(maps)+len(maps)/4)
	for _, m := range maps {
		where, rule := placement{}, l.rules.index[unwind.Generated().Fallback]
		if f := l.file(m); f != nil {
			rows := f.rows()
			next.files[f] = rows
			if rows != 0 {
				list = append(list, mapping{Start: m.Start, End: m.Limit, Rows: rows})
				continue
			}
			where, rule = f.placement, f.fallback
		}
		list = appendMappings(list, m, where, rule)
	}
	list, next.cut = bound(joinBare(list), l.config.mappingsEach)
	// Even an empty layout has a place, so that its word is unique.
	next.at.n = max(uint32(len(list)), 1)
	var ok bool
	if next.at.start, ok = l.room.alloc(next.at.n); !ok {
		return nil
	}
	copy(l.kernel.mappings(next.at), list)
	next.word = packLayout(span{next.at.start, uint32(len(list))}, l.saltFor(list, old))
	for f := range next.files {
		f.layouts[next] = true
	}
	l.layouts[next.word] = next
	if old != nil {
		old.next = next
	}
	return next
}

// rows returns what stands for the rows of a table that is not made yet, or 0.
func (f *file) rows() uint32 {
	switch {
	case f.done:
		return 0
	case f.late:
		return tableLate
	}
	return tablePending
}

// isCurrent reports whether a layout has the given mappings, and all tables that were made for them.
func (l *Loader) isCurrent(y *layout, maps []process.Mapping) bool {
	if !slices.Equal(y.sources, maps) {
		return false
	}
	for _, m := range maps {
		if f := l.file(m); f != nil {
			if rows, used := y.files[f]; !used || rows != f.rows() {
				return false
			}
		}
	}
	return true
}

// same reports whether a and b are the same slice.
func same(a, b []process.Mapping) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// saltFor returns the salt of a new layout. It keeps the salt of old if mappings were
// only added, so that the walkers' caches stay warm. If several layouts extend old, only
// the first may keep it.
func (l *Loader) saltFor(list []mapping, old *layout) uint32 {
	if old != nil && !old.extended && extends(list, withTables(l.kernel.mappings(layoutSpan(old.word)))) {
		old.extended = true
		return layoutSalt(old.word)
	}
	l.salts++
	return salt(l.salts)
}

// salt returns the nth salt. The walker's cache combines salt and address by exclusive or.
// User-space addresses have addressBits bits, so salts count up in the bits above them first.
// Otherwise consecutive salts would make nearby addresses collide.
func salt(n uint32) uint32 {
	const shared = addressBits - (64 - saltBits) // bits of a salt that overlap addresses
	n &= 1<<saltBits - 1
	return n<<shared&(1<<saltBits-1) | n>>(saltBits-shared)
}

// addressBits is the maximum number of bits in an address, unless a program asks mmap(2) for
// higher ones.
const addressBits = 48

// extends reports whether list contains all of old. Both are sorted.
func extends[T comparable](list, old []T) bool {
	for _, m := range list {
		if len(old) > 0 && old[0] == m {
			old = old[1:]
		}
	}
	return len(old) == 0
}

// withTables returns the mappings whose addresses may be in walkers' caches: all but those
// whose table is pending.
func withTables(list []mapping) []mapping {
	return slices.DeleteFunc(slices.Clone(list), func(m mapping) bool { return m.Rows == tablePending || m.Rows == tableLate })
}

// joinBare joins adjacent mappings without a table.
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

// bound drops mappings above limit, those without a table first.
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

// dropLayout removes a process from its layout, which is retired if it was the last one.
func (l *Loader) dropLayout(p *proc) {
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

// setLayout assigns a layout to a process. The layout may be a retired one.
func (l *Loader) setLayout(p *proc, next *layout) {
	if next.retired {
		next.retired = false
		l.retired = slices.DeleteFunc(l.retired, func(r retired) bool { return r.layout == next })
	}
	next.procs[p] = true
	p.layout = next
}

// settle waits for running programs, and frees the layouts that were retired before the
// given time. It locks l.mu.
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
	l.retryNoRoom()
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

// release frees a layout's space.
func (l *Loader) release(old *layout) {
	l.room.release(old.at)
	old.next = nil
	delete(l.layouts, old.word)
	for f := range old.files {
		delete(f.layouts, old)
		if len(f.layouts) == 0 {
			l.unused = append(l.unused, f)
		}
	}
}

// maxUnused is the number of unused tables to keep: successive runs of a compiler need the
// same tables.
const maxUnused = 512

// dropUnused forgets the tables that have been unused the longest, and returns their
// words.
func (l *Loader) dropUnused() []span {
	if len(l.unused) <= maxUnused {
		return nil
	}
	// A table that was used again in the meantime was added again when it became unused.
	var words []span
	seen := map[*file]bool{}
	l.unused = slices.DeleteFunc(l.unused, func(f *file) bool {
		drop := len(f.layouts) > 0 || seen[f]
		seen[f] = true
		return drop
	})
	for len(l.unused) > maxUnused/2 {
		f := l.unused[0]
		l.unused = l.unused[1:]
		if f.queued && !f.done {
			continue // for the next call
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
