package dwarf

import (
	"fmt"
	"sync"

	"fulgur/internal/symbols/dwarfdata"
)

// maxUnit bounds the size of a unit in bytes, since it is read at once. Units of whole
// programs that are optimized at link time reach a tenth of this.
const maxUnit = 1 << 30

// header is the header of a unit in .debug_info (7.5.1). A file may have a million units,
// so it is small.
type header struct {
	off       uint64
	end       uint64 // after the last entry
	abbrevOff uint64
	format
	kind uint8 // DW_UT_*
	size uint8 // of the header, in bytes
}

// unit is a unit that was looked up. It is parsed on demand.
type unit struct {
	file *file
	header
	first uint64 // offset of the root entry

	rootOnce sync.Once
	root     root
	rootErr  error

	// state is the parsed state, guarded by cache.mu.
	state *state
}

// root holds the attributes of the root entry and the unit's bases. Offsets are relative
// to sections rather than contributions.
type root struct {
	name, compDir string
	dwoName       string
	dwoID         uint64
	hasLine       bool
	lineOff       uint64
	extent        extent
	lowPC         uint64 // base of addresses in range lists

	addrFile       *file // file with .debug_addr, and .debug_ranges for version 4
	addrBase       uint64
	strOffsetsBase uint64
	rnglistsBase   uint64 // of the offsets array
	rnglistsStart  uint64 // base of offsets into .debug_rnglists
	rangesBase     uint64 // base of offsets into .debug_ranges
}

func newUnit(f *file, h header) *unit {
	return &unit{file: f, header: h, first: h.off + uint64(h.size)}
}

func (u *unit) errorf(format string, args ...any) error {
	return u.file.info.errorf(u.off, "unit with %s", fmt.Sprintf(format, args...))
}

// code reports whether the unit can contain functions with addresses.
func (h *header) code() bool {
	return h.kind == unitCompile || h.kind == unitSkeleton
}

// types reports whether this is a type unit. This package ignores references to type units.
func (h *header) types() bool {
	return h.kind == unitType || h.kind == unitSplitType
}

// maxUnitHeader is the maximum size of a header.
const maxUnitHeader = 12 + 2 + 1 + 1 + 8 + 8 + 8

// readHeader reads the header of the unit at off, and the offset of the next one, or 0 if
// that is unknown. A header without a version is padding.
func (f *file) readHeader(off uint64) (h header, next uint64, err error) {
	b, err := f.info.cache.Bytes(off, maxUnitHeader)
	if err != nil {
		return h, 0, err
	}
	r := &dwarfdata.Reader{Data: b}
	length, offsetSize := r.UnitLength()
	start := off + uint64(r.Pos)
	if r.Bad || length > f.info.size-start {
		return h, 0, f.info.errorf(off, "unit longer than the section")
	}
	if length == 0 {
		return h, start, nil
	}
	next = start + length
	h = header{off: off, end: next, kind: unitCompile}
	h.offsetSize = offsetSize
	h.version = r.U16()
	if h.version < 2 || h.version > 5 {
		return h, next, f.info.errorf(off, "unit of unknown DWARF version %d", h.version)
	}
	if h.version >= 5 {
		h.kind = r.U8()
		h.addrSize = r.U8()
		h.abbrevOff = r.Word(offsetSize)
	} else {
		h.abbrevOff = r.Word(offsetSize)
		h.addrSize = r.U8()
	}
	switch h.kind {
	case unitSkeleton, unitSplitCompile:
		r.Skip(dwoIDSize)
	case unitType, unitSplitType:
		r.Skip(8 + uint64(offsetSize))
	}
	h.size = uint8(r.Pos)
	if r.Bad || uint64(r.Pos) > next-off {
		return h, next, f.info.errorf(off, "unit shorter than its header")
	}
	if h.addrSize != 4 && h.addrSize != 8 {
		return h, next, f.info.errorf(off, "unit with addresses of %d bytes", h.addrSize)
	}
	return h, next, nil
}

// dwoIDSize is the size of the ID at the end of the headers of skeleton and split units.
const dwoIDSize = 8

// readDwoID reads the unit's DWO ID. In version 4 it is an attribute.
func (u *unit) readDwoID() (err error) {
	if u.kind == unitSkeleton || u.kind == unitSplitCompile {
		u.root.dwoID, err = u.file.info.word(u.first-dwoIDSize, dwoIDSize)
	}
	return err
}

// load reads all bytes of the unit into b, growing it if necessary.
func (u *unit) load(b []byte) ([]byte, error) {
	size := u.end - u.off
	if size > maxUnit {
		return nil, u.errorf("more than %d bytes", maxUnit)
	}
	if uint64(cap(b)) < size {
		b = make([]byte, size+size/8)
	}
	b = b[:size]
	return b, u.file.info.read(b, u.off)
}

// readRoot reads the root entry once.
func (u *unit) readRoot() error {
	return u.readRootOf(nil)
}

// readRootOf reads the root entry once, from b if it is not nil.
func (u *unit) readRootOf(b *body) error {
	u.rootOnce.Do(func() {
		u.root.addrFile = u.file
		u.defaultBases()
		u.rootErr = u.parseRoot(b)
	})
	return u.rootErr
}

func (u *unit) parseRoot(b *body) error {
	if err := u.readDwoID(); err != nil {
		return err
	}
	if b != nil {
		r := b.at(u.first - u.off)
		attrs, ok := u.rootAttrs(b.abbrevs, r)
		if !ok || r.Bad {
			return b.errorAt(int(u.first-u.off), "malformed first entry of a unit")
		}
		return u.setRoot(attrs)
	}
	// The root's abbreviation is nearly always the first one.
	for _, firstOnly := range [...]bool{true, false} {
		t := &abbrevs{}
		if err := u.file.parseAbbrevs(t, u.abbrevOff, u.format, firstOnly); err != nil {
			return err
		}
		var attrs []rootAttr
		known := true
		err := u.file.info.parse(u.first, 128, u.end-u.first, func(r *dwarfdata.Reader) bool {
			attrs, known = u.rootAttrs(t, r)
			return !known || !r.Bad
		})
		if err != nil {
			return err
		}
		if known {
			return u.setRoot(attrs)
		}
	}
	return u.file.info.errorf(u.first, "entry with an unknown abbreviation")
}

// rootAttrs reads the attributes of the root. ok is false if its abbreviation is unknown.
func (u *unit) rootAttrs(t *abbrevs, r *dwarfdata.Reader) (attrs []rootAttr, ok bool) {
	code := r.ULEB()
	a := t.get(code)
	if a == nil {
		return nil, code == 0 // an empty unit
	}
	for _, at := range a.attrs {
		attrs = append(attrs, rootAttr{at.name, readValue(r, at, u.format)})
	}
	return attrs, true
}

type rootAttr struct {
	name uint16
	value
}

// setRoot interprets the attributes, bases first because the others depend on them.
func (u *unit) setRoot(attrs []rootAttr) error {
	for _, at := range attrs {
		u.setBase(at)
	}
	var probs problems
	for _, at := range attrs {
		var err error
		v := at.value
		switch at.name {
		case attrName:
			u.root.name, err = u.text(v)
		case attrCompDir:
			u.root.compDir, err = u.text(v)
		case attrDwoName, attrGNUDwoName:
			u.root.dwoName, err = u.text(v)
		case attrStmtList:
			u.root.lineOff, u.root.hasLine = v.u, true
		case attrLowPC:
			u.root.lowPC, err = u.address(v)
		}
		u.root.extent.set(at.name, v)
		probs.add(err)
	}
	return probs.err()
}

// defaultBases sets the bases that a unit does not specify. In version 5, a base is after the
// header of the unit's contribution, and a .dwo file has only one contribution.
func (u *unit) defaultBases() {
	if u.version < 5 {
		return
	}
	header := uint64(8) // length, version, two more fields
	if u.offsetSize == 8 {
		header = 16
	}
	u.root.strOffsetsBase = header
	u.root.addrBase = header
	u.root.rnglistsBase = header + 4
}

func (u *unit) setBase(at rootAttr) {
	switch at.name {
	case attrStrOffsetsBase:
		u.root.strOffsetsBase = at.u
	case attrAddrBase, attrGNUAddrBase:
		u.root.addrBase = at.u
	case attrRnglistsBase:
		u.root.rnglistsBase = at.u
	case attrGNURangesBase:
		u.root.rangesBase = at.u
	case attrGNUDwoID:
		u.root.dwoID = at.u
	}
}

// highPC returns the end of a range. DW_AT_high_pc is an address, or an offset from low.
func (u *unit) highPC(low uint64, v value) (uint64, error) {
	if v.isConstant() {
		return low + v.u, nil
	}
	return u.address(v)
}
