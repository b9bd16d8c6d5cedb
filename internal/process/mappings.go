package process

import (
	"math"
	"slices"
)

// Mapping is an executable mapping of a process.
type Mapping struct {
	// Start and Limit are the first address and one past the last; Offset is
	// the file offset of Start, in bytes.
	Start, Limit, Offset uint64
	Kind                 Kind
	// File is the mapped file, for KindFile alone.
	File *File
}

// Mappings returns the executable mappings that process pid has now, as far as
// they are known, sorted and without overlaps. Memory that was unmapped may
// still be among them: no record tells of that. It has no part in what makes
// files stay readable; see [Table.Resolve].
func (t *Table) Mappings(pid int) []Mapping { return t.MappingsAt(pid, math.MaxUint64) }

// MappingsAt returns the mappings of what process pid ran at a time (CLOCK_MONOTONIC,
// ns), as [Table.Mappings] does: an exec since does not matter, what was mapped
// since is among them.
func (t *Table) MappingsAt(pid int, time uint64) []Mapping {
	if pid <= 0 {
		return nil
	}
	t.files.openQueued()
	i := t.image(pid)
	for i != nil && time < i.from {
		i = i.prev
	}
	if i == nil {
		return nil
	}
	if i.unread() {
		t.load(pid, i)
	}
	return i.mappings()
}

// mappings returns what is mapped where: what records told of, and between
// that what was there before.
func (i *image) mappings() []Mapping {
	var under []mapping
	switch {
	case i.base == nil:
	case i.base.read:
		under = i.base.maps
	case i.base.before != nil:
		under = i.base.before.live
	}
	all := make([]Mapping, 0, len(i.live)+len(under))
	add := func(m mapping) {
		all = append(all, Mapping{Start: m.start, Limit: m.limit, Offset: m.off, Kind: m.kind, File: m.file})
	}
	live := i.live
	for _, m := range under {
		for len(live) > 0 && live[0].limit <= m.start {
			add(live[0])
			live = live[1:]
		}
		for n := 0; m.start < m.limit; n++ {
			if n == len(live) || live[n].start >= m.limit {
				add(m)
				break
			}
			if m.start < live[n].start {
				add(m.cut(m.start, live[n].start))
			}
			m = m.cut(min(live[n].limit, m.limit), m.limit)
		}
	}
	for _, m := range live {
		add(m)
	}
	slices.SortFunc(all, func(a, b Mapping) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	})
	return all
}

// OnMapped has fn called whenever a process mapped executable memory that it
// had not mapped so before, replacing other memory or not.
func (t *Table) OnMapped(fn func(pid int)) { t.mapped = fn }
