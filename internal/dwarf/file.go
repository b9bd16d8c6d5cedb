package dwarf

import (
	"fmt"
	"iter"
	"sort"
)

// file is one file's sections and units.
type file struct {
	name                                          string
	info, abbrev, aranges                         *pages
	line, strOffsets, addr, ranges, rnglists, idx *pages
	strs, lineStrs                                *stringTable
	alt                                           *file
	tables                                        abbrevCache
	// units are sorted by offset. A file of skeletons' bodies has them as
	// they are asked for.
	units []*unit
	index *unitIndex // of a package
}

func newFile(s *Sections) *file {
	open := func(sec Section, name string) *pages { return newPages(sec, s.Name, name) }
	f := &file{
		name:       s.Name,
		info:       open(s.Info, ".debug_info"),
		abbrev:     open(s.Abbrev, ".debug_abbrev"),
		aranges:    open(s.Aranges, ".debug_aranges"),
		line:       open(s.Line, ".debug_line"),
		strOffsets: open(s.StrOffsets, ".debug_str_offsets"),
		addr:       open(s.Addr, ".debug_addr"),
		ranges:     open(s.Ranges, ".debug_ranges"),
		rnglists:   open(s.RngLists, ".debug_rnglists"),
		idx:        open(s.CUIndex, ".debug_cu_index"),
		strs:       newStrings(s.Str, s.Name, ".debug_str"),
		lineStrs:   newStrings(s.LineStr, s.Name, ".debug_line_str"),
	}
	if s.Alt != nil {
		f.alt = newFile(s.Alt)
	}
	return f
}

func (f *file) noAlt() error {
	return fmt.Errorf("%s: its alternate debug file (made by dwz) is missing", f.name)
}

// maxPadding bounds the bytes of zeros between units. Linkers align with a few;
// a hole in the file has no end.
const maxPadding = 4 << 10

// eachUnit yields the units from an offset on, and an error for each that
// cannot be used. It ends where it is unknown what follows.
func (f *file) eachUnit(off uint64) iter.Seq2[*unit, error] {
	return func(yield func(*unit, error) bool) {
		zeros := off // where those before off begin
		for off < f.info.size {
			u, next, err := f.readUnit(off)
			if padding := u == nil && err == nil; !padding {
				if !yield(u, err) {
					return
				}
				zeros = next
			} else if next-zeros > maxPadding {
				yield(nil, f.info.errorf(zeros, "more than %d bytes of zeros", maxPadding))
				return
			}
			if next <= off {
				return
			}
			off = next
		}
	}
}

// readUnits reads the headers of all units.
func (f *file) readUnits(probs *problems) {
	for u, err := range f.eachUnit(0) {
		probs.add(err)
		if u != nil {
			u.id = len(f.units)
			f.units = append(f.units, u)
		}
	}
}

// unitAt returns the unit that holds an offset of .debug_info, or nil.
func (f *file) unitAt(off uint64) *unit {
	i := sort.Search(len(f.units), func(i int) bool { return f.units[i].end > off })
	if i < len(f.units) && f.units[i].off <= off {
		return f.units[i]
	}
	return nil
}
