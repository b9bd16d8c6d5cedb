package dwarf

import (
	"context"

	"fulgur/internal/symbols/dwarfdata"
)

// readAranges calls visit with the live ranges of .debug_aranges (6.1.2), each with the
// offset of its unit, one set after the other. Clang writes no .debug_aranges.
func (f *file) readAranges(ctx context.Context, probs *problems, visit func(unitOff, lo, hi uint64)) {
	var set []byte
	zeros := uint64(0) // start of the zeros before off
	for off := uint64(0); off < f.aranges.size && ctx.Err() == nil; {
		b, err := f.aranges.cache.Bytes(off, 12)
		if err != nil {
			probs.add(err)
			return
		}
		r := dwarfdata.Reader{Data: b}
		length, offsetSize := r.UnitLength()
		if length == 0 && !r.Bad {
			if off += uint64(r.Pos); off-zeros > maxPadding {
				probs.add(f.aranges.errorf(zeros, "more than %d bytes of zeros", maxPadding))
				return
			}
			continue
		}
		size := uint64(r.Pos) + length
		if r.Bad || length > f.aranges.size-off-uint64(r.Pos) || size > maxUnit {
			probs.add(f.aranges.errorf(off, "set longer than the section"))
			return
		}
		if uint64(cap(set)) < size {
			set = make([]byte, size+size/2)
		}
		set = set[:size]
		if err := f.aranges.read(set, off); err != nil {
			probs.add(err)
			return
		}
		r = dwarfdata.Reader{Data: set, Pos: r.Pos}
		if problem := arangeSet(&r, offsetSize, visit); problem != "" {
			probs.add(f.aranges.errorf(off, "%s", problem))
		}
		off += size
		zeros = off
	}
}

// arangeSet decodes a set. r has already read its length.
func arangeSet(r *dwarfdata.Reader, offsetSize uint8, visit func(unitOff, lo, hi uint64)) string {
	if version := r.U16(); version != 2 {
		return "set of an unknown version"
	}
	unitOff := r.Word(offsetSize)
	addrSize := r.U8()
	segmentSize := r.U8()
	if r.Bad || addrSize != 4 && addrSize != 8 || segmentSize != 0 {
		return "set with unknown addresses"
	}
	// The first range is aligned to the size of a range.
	pair := 2 * int(addrSize)
	if r.Pos%pair != 0 {
		r.Skip(uint64(pair - r.Pos%pair))
	}
	f := format{addrSize: addrSize}
	for r.Left() >= pair {
		lo, n := r.Word(addrSize), r.Word(addrSize)
		if n > 0 && lo+n > lo && !f.dead(lo) {
			visit(unitOff, lo, lo+n)
		}
	}
	return ""
}
