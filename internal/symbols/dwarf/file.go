package dwarf

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sort"
	"sync/atomic"
)

// file holds the sections and units of a file.
type file struct {
	name                                          string
	info, abbrev, aranges                         *pages
	line, strOffsets, addr, ranges, rnglists, idx *pages
	strs, lineStrs                                *stringTable
	alt                                           *file
	tables                                        abbrevCache
	// headers are sorted by offset. A file with split units has only the headers that
	// were requested.
	headers []header
	units   []atomic.Pointer[unit] // parallel to headers, nil until requested
	index   *unitIndex             // for a package
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

// maxPadding bounds the zero bytes between units. Linkers align units with a few of them; a
// hole in the file could be huge.
const maxPadding = 4 << 10

// eachHeader yields the unit headers from an offset on, and an error for each unusable
// one. It stops where the next header's offset is unknown, and when ctx is done.
func (f *file) eachHeader(ctx context.Context, off uint64) iter.Seq2[header, error] {
	return func(yield func(header, error) bool) {
		zeros := off // start of the zeros before off
		for off < f.info.size && ctx.Err() == nil {
			h, next, err := f.readHeader(off)
			if padding := h.version == 0 && err == nil; !padding {
				if !yield(h, err) {
					return
				}
				zeros = next
			} else if next-zeros > maxPadding {
				yield(header{}, f.info.errorf(zeros, "more than %d bytes of zeros", maxPadding))
				return
			}
			if next <= off {
				return
			}
			off = next
		}
	}
}

// maxUnits bounds the units of a section by its size, and so the memory for their
// headers. Compilers need hundreds of bytes for a unit and assemblers about 50. The
// largest programs have about 100 000 units.
func maxUnits(size uint64) int {
	return int(min(max(size/64, 1<<16), 1<<20))
}

// readUnits reads the headers of all units that may contain functions.
func (f *file) readUnits(ctx context.Context, probs *problems) {
	limit := maxUnits(f.info.size)
	for h, err := range f.eachHeader(ctx, 0) {
		if err != nil {
			probs.add(err)
			continue
		}
		if empty := h.off+uint64(h.size) == h.end; empty || h.types() {
			continue
		}
		if len(f.headers) == limit {
			probs.add(f.info.errorf(h.off, "more than %d units", limit))
			break
		}
		f.headers = append(f.headers, h)
	}
	f.headers = slices.Clip(f.headers)
	f.units = make([]atomic.Pointer[unit], len(f.headers))
}

// unit returns the unit of a header. It returns the same unit in each call.
func (f *file) unit(i int) *unit {
	p := &f.units[i]
	if p.Load() == nil {
		p.CompareAndSwap(nil, newUnit(f, f.headers[i]))
	}
	return p.Load()
}

// headerAt returns the index of the header whose unit contains an offset of .debug_info,
// or -1.
func (f *file) headerAt(off uint64) int {
	i := sort.Search(len(f.headers), func(i int) bool { return f.headers[i].end > off })
	if i < len(f.headers) && f.headers[i].off <= off {
		return i
	}
	return -1
}

// unitAt returns the unit that contains an offset of .debug_info, or nil.
func (f *file) unitAt(off uint64) *unit {
	if i := f.headerAt(off); i >= 0 {
		return f.unit(i)
	}
	return nil
}
