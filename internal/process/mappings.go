package process

import (
	"cmp"
	"math"
	"slices"
)

// Mapping is an executable mapping of a process.
type Mapping struct {
	// Start and Limit are the first address and one past the last. Offset is the file
	// offset of Start, in bytes.
	Start, Limit, Offset uint64
	Kind                 Kind
	// File is the mapped file; it is set only for KindFile.
	File *File
}

// Mappings returns the known executable mappings of process pid, sorted and without overlaps.
// They may include memory that is no longer mapped, because the kernel sends no records for
// munmap(2). Unlike [Table.Resolve], it does not keep files readable.
func (t *Table) Mappings(pid int) []Mapping { return t.MappingsAt(pid, math.MaxUint64) }

// MappingsAt returns the mappings of the program that process pid ran at a time
// (CLOCK_MONOTONIC, ns). It is like [Table.Mappings] except that it ignores later execs.
// It includes mappings that the program added later.
func (t *Table) MappingsAt(pid int, time uint64) []Mapping {
	if pid <= 0 {
		return nil
	}
	t.files.openQueued()
	i := t.load(pid, time, func(*image) bool { return true })
	if i == nil {
		return nil
	}
	if i.unclear() && t.look(pid, i) {
		i = t.imageAt(pid, time)
	}
	return public(i.mappings())
}

// public returns mappings in their exported form.
func public(maps []mapping) []Mapping {
	all := make([]Mapping, len(maps))
	for n, m := range maps {
		all[n] = Mapping{Start: m.start, Limit: m.limit, Offset: m.off, Kind: m.kind, File: m.file}
	}
	return all
}

// mappings returns the current mappings: the recorded ones, and the base between them.
func (i *image) mappings() []mapping {
	var under []mapping
	switch {
	case i.base == nil:
	case i.base.read:
		under = i.base.maps
	case i.base.before != nil:
		under = i.base.before.live
	}
	all := make([]mapping, 0, len(i.live)+len(under))
	add := func(m mapping) { all = append(all, m) }
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
	slices.SortFunc(all, func(a, b mapping) int { return cmp.Compare(a.start, b.start) })
	return all
}

// OnMapped sets fn to be called whenever a process maps executable memory that it had not
// mapped like this before, whether or not that replaces other memory.
func (t *Table) OnMapped(fn func(pid int)) { t.mapped = fn }
