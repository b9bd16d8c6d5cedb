package process

import "slices"

// mapping is an executable mapping of one or more processes.
type mapping struct {
	start, limit uint64
	off          uint64 // file offset of start
	from, until  uint64 // when it held; until is 0 while it does
	file         *File  // of KindFile only
	kind         Kind
}

// same reports whether m and o show the same bytes wherever they overlap.
func (m mapping) same(o mapping) bool {
	return m.kind == o.kind && m.file == o.file && (m.file == nil || m.start-m.off == o.start-o.off)
}

// overlaps reports whether m and o have an address in common.
func (m mapping) overlaps(o mapping) bool { return m.start < o.limit && o.start < m.limit }

// cut returns the part of m from start to limit.
func (m mapping) cut(start, limit uint64) mapping {
	if start > m.start {
		m.off += start - m.start
		m.start = start
	}
	m.limit = min(m.limit, limit)
	return m
}

// image is what a pid runs from a point in time on: from its fork, from an
// exec, from a loss of records, or (0) from before anyone listened. It is
// what it forked with or was born with (base) and what was mapped since.
type image struct {
	from uint64
	// exit is when the process's first thread ended, 0 before; as long as
	// others live on, a later time. threaded is whether there may be any.
	exit     uint64
	threaded bool
	parent   int  // pid of the process that forked it, 0 if unknown
	forked   bool // runs what its parent ran
	// base is what was mapped before any record tells; nil is nothing.
	base  *base
	asked bool // base was asked of this process in vain
	// live are the mappings that hold, disjoint and by ascending address. A
	// fork shares the array until one side changes it; owned is whether this
	// image may.
	live  []mapping
	owned bool
	// past are mappings that others displaced, in the order in which they
	// were.
	past []mapping
	// perfMap names code in memory without a file; nil until asked for.
	perfMap *PerfMap
	// prev is what the pid ran before.
	prev *image
}

// base is what a process had mapped before anyone listened, shared with all
// it forked, read from /proc when one of them is asked about.
type base struct {
	pid  int // whose mappings they are, if it has not left them by an exec
	read bool
	maps []mapping
	// before is what was known before records were lost, for the case that
	// the mappings cannot be read any more.
	before *image
}

// unread reports whether the image's base is still to be read.
func (i *image) unread() bool { return i.base != nil && !i.base.read && !i.asked }

// fork returns the image of a child forked at the given time.
func (i *image) fork(parent int, at uint64) *image {
	i.owned = false
	return &image{from: at, parent: parent, forked: true, base: i.base, live: i.live}
}

// find returns the position of the first mapping of the sorted maps that ends
// after addr.
func find(maps []mapping, addr uint64) int {
	lo, hi := 0, len(maps)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if maps[mid].limit > addr {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// at returns the mapping of the sorted maps that holds addr.
func at(maps []mapping, addr uint64) (mapping, bool) {
	if n := find(maps, addr); n < len(maps) && maps[n].start <= addr {
		return maps[n], true
	}
	return mapping{}, false
}

// has reports whether m says nothing new: a loader maps the same file at the
// same place more than once, and a JIT makes its memory executable again and
// again.
func (i *image) has(m mapping) bool {
	old, mapped := at(i.live, m.start)
	return mapped && old.same(m) && m.limit <= old.limit && old.from <= m.from
}

// insert maps m, which displaces what was there before it. If records come
// late, mappings newer than m stay, and m is noted as the past of those
// places. It reports whether m took the place of other bytes.
func (i *image) insert(m mapping) (replaced bool) {
	first := find(i.live, m.start)
	last := first
	for last < len(i.live) && i.live[last].overlaps(m) {
		last++
	}
	old := i.live[first:last]
	// What becomes of the places from the first old mapping to the last: the
	// pieces of old mappings that stay, and rest, what m is left with.
	var pieces []mapping
	rest, tail := m, mapping{}
	for _, o := range old {
		if o.from > m.from {
			hidden := m.cut(o.start, o.limit)
			hidden.until = o.from
			i.past = append(i.past, hidden)
			if rest.start < o.start {
				pieces = append(pieces, rest.cut(rest.start, o.start))
			}
			pieces = append(pieces, o)
			rest = rest.cut(o.limit, rest.limit)
			continue
		}
		replaced = replaced || !o.same(m)
		gone := o.cut(m.start, m.limit)
		gone.until = m.from
		i.past = append(i.past, gone)
		if o.start < m.start {
			pieces = append(pieces, o.cut(o.start, m.start))
		}
		if o.limit > m.limit {
			tail = o.cut(m.limit, o.limit)
		}
	}
	if rest.start < rest.limit {
		pieces = append(pieces, rest)
	}
	if tail.limit != 0 {
		pieces = append(pieces, tail)
	}
	i.own()
	i.live = slices.Replace(i.live, first, last, pieces...)
	return replaced
}

// own makes live this image's alone.
func (i *image) own() {
	if !i.owned {
		i.live = slices.Clone(i.live)
		i.owned = true
	}
}

// lookup returns the mapping that held addr at the given time. Its second
// result is false if none is known to.
func (i *image) lookup(addr, time uint64) (mapping, bool) {
	m, mapped := at(i.live, addr)
	if mapped && m.from <= time {
		return m, true
	}
	for n := len(i.past) - 1; n >= 0; n-- {
		if p := i.past[n]; p.start <= addr && addr < p.limit && p.from <= time && time < p.until {
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
	b, ok := at(i.base.maps, addr)
	// What was read may be what replaced the mapping that is looked for.
	return b, ok && !(mapped && m.same(b))
}

// replaces reports whether m takes the place of something that the base
// holds, or may hold, at addresses that no record told of.
func (b *base) replaces(m mapping) bool {
	if b == nil {
		return false
	}
	if !b.read {
		return true
	}
	for n := find(b.maps, m.start); n < len(b.maps) && b.maps[n].overlaps(m); n++ {
		if !b.maps[n].same(m) {
			return true
		}
	}
	return false
}

// known returns an image with all that is known of i, to fall back on: of
// one that was never read since records were lost, what was known before and
// what was mapped since.
func (i *image) known() *image {
	if i.base == nil || i.base.before == nil {
		return i
	}
	before := i.base.before
	k := &image{base: before.base, live: slices.Clone(before.live), owned: true, past: slices.Clone(before.past)}
	for _, m := range i.live {
		if !k.has(m) {
			k.insert(m)
		}
	}
	return k
}

// forget drops what ended before the given time.
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
