package dwarf

import "context"

// readAranges calls f with the live ranges of .debug_aranges (6.1.2), each
// with the offset of its unit, one set after the other. Clang writes none.
func (f *file) readAranges(ctx context.Context, probs *problems, visit func(unitOff, lo, hi uint64)) {
	var set []byte
	zeros := uint64(0) // where those before off begin
	for off := uint64(0); off < f.aranges.size && ctx.Err() == nil; {
		b, err := f.aranges.window(off, 12)
		if err != nil {
			probs.add(err)
			return
		}
		r := buf{b: b}
		length, offsetSize := r.unitLength()
		if length == 0 && !r.bad {
			if off += uint64(r.pos); off-zeros > maxPadding {
				probs.add(f.aranges.errorf(zeros, "more than %d bytes of zeros", maxPadding))
				return
			}
			continue
		}
		size := uint64(r.pos) + length
		if r.bad || length > f.aranges.size-off-uint64(r.pos) || size > maxUnit {
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
		r = buf{b: set, pos: r.pos}
		if problem := arangeSet(&r, offsetSize, visit); problem != "" {
			probs.add(f.aranges.errorf(off, "%s", problem))
		}
		off += size
		zeros = off
	}
}

// arangeSet decodes one set, whose length r has read.
func arangeSet(r *buf, offsetSize uint8, visit func(unitOff, lo, hi uint64)) string {
	if version := r.u16(); version != 2 {
		return "set of an unknown version"
	}
	unitOff := r.word(offsetSize)
	addrSize := r.u8()
	segmentSize := r.u8()
	if r.bad || addrSize != 4 && addrSize != 8 || segmentSize != 0 {
		return "set with unknown addresses"
	}
	// The first range is aligned to the size of one.
	pair := 2 * int(addrSize)
	if r.pos%pair != 0 {
		r.skip(uint64(pair - r.pos%pair))
	}
	f := format{addrSize: addrSize}
	for r.left() >= pair {
		lo, n := r.word(addrSize), r.word(addrSize)
		if n > 0 && lo+n > lo && !f.dead(lo) {
			visit(unitOff, lo, lo+n)
		}
	}
	return ""
}
