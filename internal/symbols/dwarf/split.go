package dwarf

import (
	"fmt"
	"sync/atomic"
)

// SplitUnit identifies the part of a unit in another file (7.3.2). The other file has the
// entries; the addresses and lines are in this file.
type SplitUnit struct {
	// DwoName is the path of the .dwo file, relative to CompDir unless it is absolute.
	DwoName string
	// CompDir is the working directory of the compiler.
	CompDir string
	// DwoID is the unit's ID in both files.
	DwoID uint64
}

// splitFile returns the file with a unit's entries, or nil if there is none. The caller
// may return the same package for many units, so files are cached by their sections.
func (d *Data) splitFile(s SplitUnit) (*file, error) {
	if d.split == nil {
		return nil, fmt.Errorf("%s: its debug information is in %s", d.main.name, s.DwoName)
	}
	sections, err := d.split(s)
	if err != nil {
		return nil, fmt.Errorf("%s: debug information in %s: %w", d.main.name, s.DwoName, err)
	}
	if sections == nil {
		return nil, nil
	}
	if sections.CUIndex == nil {
		return newFile(sections), nil
	}
	d.packageMu.Lock()
	defer d.packageMu.Unlock()
	f := d.packages[sections]
	if f == nil {
		f = newFile(sections)
		if f.index, err = f.readUnitIndex(); err != nil {
			return nil, err
		}
		if d.packages == nil {
			d.packages = map[*Sections]*file{}
		}
		d.packages[sections] = f
	}
	return f, nil
}

// splitUnit finds the unit that completes a skeleton, and connects them. It returns nil
// if its file is missing.
func (d *Data) splitUnit(skeleton *unit) (*unit, error) {
	s := SplitUnit{
		DwoName: skeleton.root.dwoName,
		CompDir: skeleton.root.compDir,
		DwoID:   skeleton.root.dwoID,
	}
	f, err := d.splitFile(s)
	if f == nil {
		return nil, err
	}
	var parts contributions
	off := uint64(0)
	if f.index != nil {
		var ok bool
		if parts, ok = f.index.find(s.DwoID); !ok {
			return nil, fmt.Errorf("%s: no unit with ID %#016x, which %s needs", f.name, s.DwoID, d.main.name)
		}
		off = parts[sectInfo].off
	}
	for h, err := range f.eachHeader(d.ctx, off) {
		if err != nil {
			return nil, err
		}
		if h.kind == unitCompile || h.kind == unitSplitCompile {
			u := newUnit(f, h)
			if err := u.join(skeleton, parts); err != nil {
				return nil, err
			}
			if u.root.dwoID == s.DwoID {
				if f.index == nil {
					f.headers = []header{u.header}
					f.units = make([]atomic.Pointer[unit], 1)
					f.units[0].Store(u)
				}
				return u, nil
			}
		}
		if f.index != nil {
			break
		}
	}
	if err := d.ctx.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s: no unit with ID %#016x: rebuilt since %s was linked", f.name, s.DwoID, d.main.name)
}

// join copies the attributes that a split unit inherits from its skeleton, and adds the
// offsets of its contributions to a package to its bases.
func (u *unit) join(skeleton *unit, parts contributions) error {
	u.abbrevOff += parts[sectAbbrev].off
	var err error
	u.rootOnce.Do(func() {
		u.defaultBases()
		u.root.addrFile = skeleton.file
		u.root.addrBase = skeleton.root.addrBase
		u.root.rangesBase = skeleton.root.rangesBase
		u.root.lowPC = skeleton.root.lowPC
		u.root.strOffsetsBase += parts[sectStrOffsets].off
		u.root.rnglistsBase += parts[sectRngLists].off
		u.root.rnglistsStart = parts[sectRngLists].off
		err = u.parseRoot(nil)
		u.rootErr = err
	})
	return err
}
