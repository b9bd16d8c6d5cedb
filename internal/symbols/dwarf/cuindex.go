package dwarf

import "fulgur/internal/symbols/dwarfdata"

// section identifies a section to which units contribute in a package.
type section uint8

const (
	sectInfo section = iota
	sectAbbrev
	sectStrOffsets
	sectRngLists
	sections
)

// sectionOf translates the section numbers of an index, which differ between version 5
// (7.3.5.3) and GNU's version 2.
func sectionOf(number uint32, version uint16) (section, bool) {
	switch {
	case number == 1:
		return sectInfo, true
	case number == 3:
		return sectAbbrev, true
	case number == 6:
		return sectStrOffsets, true
	case number == 8 && version == 5:
		return sectRngLists, true
	}
	return 0, false
}

// contribution is the part of a section that belongs to a unit.
type contribution struct{ off, size uint64 }

// contributions holds the contributions of a unit.
type contributions [sections]contribution

// unitIndex locates the units of a package.
type unitIndex struct {
	units map[uint64]contributions // by DwoID
}

func (x *unitIndex) find(dwoID uint64) (contributions, bool) {
	c, ok := x.units[dwoID]
	return c, ok
}

// maxIndex bounds the size of an index in bytes, since it is read at once.
const maxIndex = 256 << 20

// readUnitIndex reads .debug_cu_index.
func (f *file) readUnitIndex() (*unitIndex, error) {
	if f.idx.size > maxIndex {
		return nil, f.idx.errorf(0, "more than %d bytes", maxIndex)
	}
	b := make([]byte, f.idx.size)
	if err := f.idx.read(b, 0); err != nil {
		return nil, err
	}
	x, problem := parseUnitIndex(b)
	if problem != "" {
		return nil, f.idx.errorf(0, "%s", problem)
	}
	return x, nil
}

// parseUnitIndex decodes an index of units (7.3.5.3): a hash table of unit IDs, the
// corresponding rows, and rows of offsets and of sizes with a column for each section.
func parseUnitIndex(b []byte) (*unitIndex, string) {
	r := dwarfdata.Reader{Data: b}
	// Version 2 is a 4-byte number, version 5 a 2-byte number and padding.
	version := r.U16()
	r.U16()
	columns, units, slots := r.U32(), r.U32(), r.U32()
	if version != 2 && version != 5 {
		return nil, "index of an unknown version"
	}
	left := uint64(r.Left())
	rows := uint64(units) * uint64(columns) * 4
	if r.Bad || columns > 64 || uint64(slots)*12+uint64(columns)*4+2*rows > left {
		return nil, "index shorter than its table"
	}
	hashes := dwarfdata.Reader{Data: r.Take(uint64(slots) * 8)}
	numbers := dwarfdata.Reader{Data: r.Take(uint64(slots) * 4)}
	kinds := dwarfdata.Reader{Data: r.Take(uint64(columns) * 4)}
	offsets := r.Take(rows)
	sizes := r.Take(rows)
	x := &unitIndex{units: make(map[uint64]contributions, min(units, slots))}
	for range slots {
		id, row := hashes.U64(), numbers.U32()
		if row == 0 {
			continue
		}
		if row > units {
			return nil, "index with a row beyond its table"
		}
		var c contributions
		at := int(row-1) * int(columns) * 4
		kind, off, size := kinds, dwarfdata.Reader{Data: offsets, Pos: at}, dwarfdata.Reader{Data: sizes, Pos: at}
		for range columns {
			number, o, n := kind.U32(), off.U32(), size.U32()
			if s, ok := sectionOf(number, version); ok {
				c[s] = contribution{uint64(o), uint64(n)}
			}
		}
		x.units[id] = c
	}
	return x, ""
}
