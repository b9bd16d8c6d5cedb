package dwarf

import "fulgur/internal/symbols/dwarfdata"

// span is the code from lo up to hi, labeled with id.
type span struct {
	lo, hi uint64
	id     int32
}

// maxSpans bounds a single range list.
const maxSpans = 1 << 20

// dead reports whether an address marks code that the linker dropped. The linker cannot drop
// the debug information of such code. It sets the address to 0, to 1 in lists that 0 would
// end, or to a number near the maximum.
func (f format) dead(addr uint64) bool {
	return addr <= 1 || addr >= f.maxAddr()-1
}

func (f format) maxAddr() uint64 {
	if f.addrSize == 4 {
		return 0xffffffff
	}
	return ^uint64(0)
}

// extent holds the attributes that describe the code of an entry.
type extent struct {
	low, high, ranges value
	hasLow, hasHigh   bool
	hasRanges         bool
}

// set stores an attribute if it describes code.
func (e *extent) set(name uint16, v value) {
	switch name {
	case attrLowPC:
		e.low, e.hasLow = v, true
	case attrHighPC:
		e.high, e.hasHigh = v, true
	case attrRanges:
		e.ranges, e.hasRanges = v, true
	}
}

// spans appends the live ranges of an entry, labeled with id.
func (u *unit) spans(to []span, e *extent, id int32) ([]span, error) {
	if e.hasLow && e.hasHigh {
		low, err := u.address(e.low)
		if err != nil {
			return to, err
		}
		high, err := u.highPC(low, e.high)
		if err != nil {
			return to, err
		}
		return u.appendSpan(to, low, high, id), nil
	}
	if e.hasRanges {
		return u.rangeList(to, e.ranges, id)
	}
	return to, nil
}

func (u *unit) appendSpan(to []span, lo, hi uint64, id int32) []span {
	if lo >= hi || u.dead(lo) {
		return to
	}
	return append(to, span{lo, hi, id})
}

// rangeList appends the live ranges of a DW_AT_ranges.
func (u *unit) rangeList(to []span, v value, id int32) ([]span, error) {
	var off uint64
	var p *pages
	var list func(*dwarfdata.Reader, []span, int32) ([]span, error)
	switch {
	case u.version < 5:
		p, list = u.root.addrFile.ranges, u.rangesV4
		off = v.u + u.root.rangesBase
	case v.form == formRnglistx:
		p, list = u.file.rnglists, u.rnglist
		base := u.root.rnglistsBase
		if v.u >= p.size/uint64(u.offsetSize) {
			return to, p.errorf(base, "no range list with index %d", v.u)
		}
		rel, err := p.word(base+v.u*uint64(u.offsetSize), u.offsetSize)
		if err != nil {
			return to, err
		}
		off = base + rel
	default:
		p, list = u.file.rnglists, u.rnglist
		off = u.root.rnglistsStart + v.u
	}
	n := len(to)
	var listErr error
	err := p.parse(off, 256, p.size, func(r *dwarfdata.Reader) bool {
		to, listErr = list(r, to[:n], id)
		return listErr != nil || !r.Bad
	})
	if err == nil {
		err = listErr
	}
	if err != nil {
		return to[:n], err
	}
	return to, nil
}

// rangesV4 decodes a list of .debug_ranges (DWARF 4, 2.17.3): pairs of addresses relative
// to a base. (-1, base) sets the base and (0, 0) ends the list.
func (u *unit) rangesV4(r *dwarfdata.Reader, to []span, id int32) ([]span, error) {
	base := u.root.lowPC
	deadBase := false
	for n := 0; !r.Bad; n++ {
		lo, hi := r.Word(u.addrSize), r.Word(u.addrSize)
		switch {
		case lo == 0 && hi == 0:
			return to, nil
		case n == maxSpans:
			return to, u.errorf("a list of more than %d ranges", maxSpans)
		case lo == u.maxAddr():
			base = hi
			deadBase = hi != 0 && u.dead(hi)
		case !deadBase:
			to = u.appendSpan(to, lo+base, hi+base, id)
		}
	}
	return to, nil
}

// Entry kinds of range lists (7.25).
const (
	rleEndOfList    = 0x00
	rleBaseAddressx = 0x01
	rleStartxEndx   = 0x02
	rleStartxLength = 0x03
	rleOffsetPair   = 0x04
	rleBaseAddress  = 0x05
	rleStartEnd     = 0x06
	rleStartLength  = 0x07
)

// rnglist decodes a list of .debug_rnglists (2.17.3).
func (u *unit) rnglist(r *dwarfdata.Reader, to []span, id int32) ([]span, error) {
	base := u.root.lowPC
	deadBase := false
	for n := 0; !r.Bad; n++ {
		var lo, hi uint64
		var err error
		op := r.U8()
		if n == maxSpans && op != rleEndOfList {
			return to, u.errorf("a list of more than %d ranges", maxSpans)
		}
		switch op {
		case rleEndOfList:
			return to, nil
		case rleBaseAddressx:
			if base, err = u.indexedAddress(r.ULEB()); err != nil && !r.Bad {
				return to, err
			}
			deadBase = u.dead(base)
			continue
		case rleBaseAddress:
			base = r.Word(u.addrSize)
			deadBase = u.dead(base)
			continue
		case rleOffsetPair:
			lo, hi = base+r.ULEB(), base+r.ULEB()
			if deadBase {
				continue
			}
		case rleStartxEndx, rleStartxLength:
			start, end := r.ULEB(), r.ULEB()
			if r.Bad {
				return to, nil
			}
			if lo, err = u.indexedAddress(start); err != nil {
				return to, err
			}
			hi = lo + end
			if op == rleStartxEndx {
				if hi, err = u.indexedAddress(end); err != nil {
					return to, err
				}
			}
		case rleStartEnd:
			lo, hi = r.Word(u.addrSize), r.Word(u.addrSize)
		case rleStartLength:
			lo = r.Word(u.addrSize)
			hi = lo + r.ULEB()
		default:
			if r.Bad {
				return to, nil
			}
			return to, u.errorf("a range list with an unknown entry %#x", op)
		}
		if !r.Bad {
			to = u.appendSpan(to, lo, hi, id)
		}
	}
	return to, nil
}
