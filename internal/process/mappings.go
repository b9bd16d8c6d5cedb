package process

import "math"

// Mapping is an executable mapping of a process.
type Mapping struct {
	// Start and Limit are the first address and one past the last. Offset is the file
	// offset of Start, in bytes.
	Start, Limit, Offset uint64
	Kind                 Kind
	// File is the mapped file; it is set only for KindFile.
	File *File
}

// Files returns the files of mappings, each as often as it is mapped.
func Files(mappings []Mapping) (files []*File) {
	for _, m := range mappings {
		if m.File != nil {
			files = append(files, m.File)
		}
	}
	return files
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
func public(maps space) []Mapping {
	all := make([]Mapping, 0, maps.Len())
	for m := range maps.All() {
		all = append(all, Mapping{Start: m.start, Limit: m.limit, Offset: m.off, Kind: m.kind, File: m.file})
	}
	return all
}

// mappings returns the current mappings: the recorded ones, and the base between them.
func (i *image) mappings() space {
	var all space
	switch {
	case i.base == nil:
	case i.base.read:
		all = i.base.maps
	case i.base.before != nil:
		all = i.base.before.live
	}
	if all.Len() == 0 {
		return i.live
	}
	for m := range i.live.All() {
		all = all.With(m)
	}
	return all
}

// OnMapped sets fn to be called whenever a process maps executable memory that it had not
// mapped like this before, whether or not that replaces other memory.
func (t *Table) OnMapped(fn func(pid int)) { t.mapped = fn }
