package unwind

import (
	"cmp"
	"debug/elf"
	"slices"

	"fulgur/internal/symbols/elffile"
)

// codeRanges holds the executable segments of a file, sorted, without overlaps and no
// larger in total than the file. This bounds everything proportional to them.
type codeRanges struct{ segments []Segment }

func newCodeRanges(f *elffile.File) *codeRanges {
	var c codeRanges
	left := uint64(f.Size())
	for _, s := range f.Segments() {
		if s.Type != elf.PT_LOAD || s.Flags&elf.PF_X == 0 || s.Offset >= uint64(f.Size()) || s.Addr >= 1<<63 {
			continue
		}
		size := min(s.FileSize, left, uint64(f.Size())-s.Offset)
		if size > 0 {
			left -= size
			c.segments = append(c.segments, Segment{Addr: s.Addr, Offset: s.Offset, Size: size})
		}
	}
	slices.SortStableFunc(c.segments, func(a, b Segment) int { return cmp.Compare(a.Addr, b.Addr) })
	end := uint64(0)
	c.segments = slices.DeleteFunc(c.segments, func(s Segment) bool {
		if s.Addr < end {
			return true // no linker creates overlapping segments
		}
		end = s.Addr + s.Size
		return false
	})
	return &c
}

// end returns the end of the segment that contains addr.
func (c *codeRanges) end(addr uint64) (uint64, bool) {
	for _, s := range c.segments {
		if addr-s.Addr < s.Size {
			return s.Addr + s.Size, true
		}
	}
	return 0, false
}

// layer returns the spans of the chunks, sorted and without overlaps. If two functions
// overlap, the later one cuts the earlier one off. The lookup through .eh_frame_hdr,
// which exceptions use, does the same. If two begin at the same address, the first in the
// section wins.
func layer(chunks []*chunk) []span {
	// Keys are small and have no pointers: sorting spans would take three times as long.
	type key struct {
		start     uint64
		chunk, at uint32
	}
	n := 0
	for _, c := range chunks {
		n += len(c.spans)
	}
	keys := make([]key, 0, n)
	for i, c := range chunks {
		for j := range c.spans {
			keys = append(keys, key{c.spans[j].start, uint32(i), uint32(j)})
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		if a.start != b.start {
			return cmp.Compare(a.start, b.start)
		}
		return cmp.Or(cmp.Compare(a.chunk, b.chunk), cmp.Compare(a.at, b.at))
	})
	all := make([]span, 0, n)
	for _, k := range keys {
		if last := len(all) - 1; last >= 0 {
			if all[last].start == k.start {
				continue
			}
			all[last].end = min(all[last].end, k.start)
		}
		all = append(all, chunks[k.chunk].spans[k.at])
	}
	for _, c := range chunks {
		c.spans = nil
	}
	return all
}

// fill returns the spans of base, plus the parts of extra that base does not cover. Both
// are sorted and without overlaps.
func fill(base, extra []span) []span {
	if len(extra) == 0 {
		return base
	}
	if len(base) == 0 {
		return extra
	}
	out := make([]span, 0, len(base)+len(extra))
	for _, e := range extra {
		for e.start < e.end {
			// Add the spans of base that begin at or before e.
			for len(base) > 0 && base[0].start <= e.start {
				out = append(out, base[0])
				base = base[1:]
			}
			if n := len(out); n > 0 {
				e.start = max(e.start, out[n-1].end)
			}
			piece := e
			if len(base) > 0 {
				piece.end = min(e.end, base[0].start)
			}
			if piece.start < piece.end {
				out = append(out, piece)
			}
			e.start = max(e.start, piece.end)
			if len(base) == 0 || base[0].start >= e.end {
				break
			}
		}
	}
	return append(out, base...)
}

// gaps calls yield with the parts of the code that spans do not cover.
func (c *codeRanges) gaps(spans []span, yield func(start, end uint64)) {
	for _, s := range c.segments {
		at, end := s.Addr, s.Addr+s.Size
		for len(spans) > 0 && spans[0].start < end {
			if at < spans[0].start {
				yield(at, spans[0].start)
			}
			at = spans[0].end
			spans = spans[1:]
		}
		if at < end {
			yield(at, end)
		}
	}
}
