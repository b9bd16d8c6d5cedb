package process

import (
	"slices"

	"fulgur/internal/process/addrspace"
)

// space is an address space.
type space = addrspace.Space[mapping]

// mapping is an executable mapping of one or more processes.
type mapping struct {
	start, limit uint64
	off          uint64 // file offset of start
	from, until  uint64 // validity; until is 0 while the mapping exists
	file         *File  // only for KindFile
	kind         Kind
	copied       bool // memory without a file that holds the file's code; see [Table.copiesIn]
}

// same reports whether m and o map the same bytes wherever they overlap.
func (m mapping) same(o mapping) bool {
	return m.kind == o.kind && m.file == o.file && (m.file == nil || m.start-m.off == o.start-o.off)
}

// holds reports whether addr is in m.
func (m mapping) holds(addr uint64) bool { return m.start <= addr && addr < m.limit }

// Bounds implements [addrspace.Part].
func (m mapping) Bounds() (start, limit uint64) { return m.start, m.limit }

// Cut implements [addrspace.Part].
func (m mapping) Cut(start, limit uint64) mapping {
	m.off += start - m.start
	m.start, m.limit = start, limit
	return m
}

// within returns the part of m from start to limit, which may lie outside of m. It is empty if m is.
func (m mapping) within(start, limit uint64) mapping {
	start = max(start, m.start)
	return m.Cut(start, max(start, min(limit, m.limit)))
}

// image is the address space of a pid from a fork, an exec or a loss of records on, or, if
// from is 0, from before the profiler listened. It consists of the initial mappings (base)
// and the mappings added since.
type image struct {
	from uint64
	// exit is when the process's first thread ended, or 0. [Table.Forget] moves it forward
	// while other threads live on. threaded is whether there may be other threads.
	exit     uint64
	threaded bool
	parent   int    // pid of the parent, 0 if unknown
	forked   bool   // runs its parent's program
	program  string // path of its program, "" if unknown
	// base holds the mappings from before the first record; nil means none.
	base   *base
	failed bool // reading base through this process failed
	// live holds the current mappings.
	live space
	// past holds displaced mappings, in the order in which they were displaced.
	past []mapping
	// perfMap names code in anonymous memory. nil until requested.
	perfMap *PerfMap
	// dumps are the jitdump files, which name such code too: nil until requested, or if there
	// are none. marked holds the files mapped since from that are named like jitdump files.
	// inherited is whether the parent's dumps were looked up.
	dumps     *JITDumps
	marked    []*File
	inherited bool
	looks     looks
	// prev is the pid's previous image.
	prev *image
}

// base holds the mappings of a process from before the profiler listened. The process shares
// it with its children. It is read from /proc at the first lookup in any of them.
type base struct {
	pid  int // the process that had these mappings; it may have executed another program since
	read bool
	maps space
	// marked holds the mapped files with the name of a jitdump file.
	marked []*File
	// before is the image from before records were lost. It is used if the mappings can no
	// longer be read.
	before *image
}

// unread reports whether the image's base is still to be read.
func (i *image) unread() bool { return i.base != nil && !i.base.read && !i.failed }

// fork returns the image of a child forked at the given time.
func (i *image) fork(parent int, at uint64) *image {
	decided := looks{last: i.looks.last, doubtful: i.looks.doubtful, again: i.looks.again}
	return &image{from: at, parent: parent, forked: true, program: i.program, base: i.base, live: i.live, looks: decided}
}

// has reports whether m is already known: a loader maps the same file at the same place
// more than once, and a JIT makes its memory executable repeatedly.
func (i *image) has(m mapping) bool {
	old, mapped := i.live.Find(m.start)
	return mapped && old.same(m) && m.limit <= old.limit && old.from <= m.from
}

// insert adds m, which displaces older mappings at its addresses. If records arrive late,
// mappings newer than m stay, and m becomes past there. It reports whether m displaced
// other bytes.
func (i *image) insert(m mapping) (replaced bool) {
	rest := m // the part of m that is not yet in its place
	for o := range i.live.Over(m.start, m.limit) {
		both := o.within(m.start, m.limit)
		if o.from > m.from {
			hidden := m.Cut(both.start, both.limit)
			hidden.until = o.from
			i.past = append(i.past, hidden)
			i.live = i.live.With(rest.within(rest.start, both.start))
			rest = rest.within(both.limit, rest.limit)
			continue
		}
		replaced = replaced || !o.same(m)
		both.until = m.from
		i.past = append(i.past, both)
	}
	i.live = i.live.With(rest)
	return replaced
}

// lookup returns the mapping that contained addr at the given time. The second result is
// false if none is known.
func (i *image) lookup(addr, time uint64) (mapping, bool) {
	m, mapped := i.live.Find(addr)
	if mapped && m.from <= time {
		return m, true
	}
	for _, p := range slices.Backward(i.past) {
		if p.start <= addr && addr < p.limit && p.from <= time && time < p.until {
			return p, true
		}
	}
	if i.base == nil {
		return mapping{}, false
	}
	if !i.base.read {
		if i.base.before != nil {
			return i.base.before.lookup(addr, time)
		}
		return mapping{}, false
	}
	b, ok := i.base.maps.Find(addr)
	// The base may have been read after the mapping was replaced.
	return b, ok && !(mapped && m.same(b))
}

// replaces reports whether m, at addresses without records, replaces something that b
// contains or, if it is unread, may contain.
func (b *base) replaces(m mapping) bool {
	if b == nil {
		return false
	}
	if !b.read {
		return true
	}
	for o := range b.maps.Over(m.start, m.limit) {
		if !o.same(m) {
			return true
		}
	}
	return false
}

// known returns an image with everything known about i, as a fallback. If /proc was not read
// after a loss of records, this is the state before the loss plus the mappings added since.
func (i *image) known() *image {
	if i.base == nil || i.base.before == nil {
		return i
	}
	before := i.base.before
	k := &image{base: before.base, live: before.live, past: slices.Clone(before.past)}
	for m := range i.live.All() {
		if !k.has(m) {
			k.insert(m)
		}
	}
	return k
}

// forget drops mappings and images that ended before the given time.
func (i *image) forget(before uint64) {
	if i.from <= before {
		i.prev = nil
	} else if i.prev != nil {
		i.prev.forget(before)
	}
	i.past = slices.DeleteFunc(i.past, func(m mapping) bool { return m.until <= before })
	if len(i.past) == 0 {
		i.past = nil
	}
	if i.perfMap != nil {
		i.perfMap = i.perfMap.at(before)
	}
	if i.base != nil && i.base.before != nil {
		i.base.before.forget(before)
	}
}
