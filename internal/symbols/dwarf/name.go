package dwarf

import "fulgur/internal/symbols/dwarfdata"

// Function describes a function. Frames of a unit share it, so callers can cache derived data
// by its pointer.
type Function struct {
	// Name is the linker name (DW_AT_linkage_name). If there is none, it is the name in
	// the source (DW_AT_name), without enclosing scopes. It is empty if there is neither.
	Name string
	// Linkage is whether Name is the linker name. If not, and the function is not inlined, a
	// symbol table may have a better name.
	Linkage bool
	// StartLine is the line of the function's declaration, 1-based, or 0 if unknown.
	StartLine int
}

// maxOrigins bounds the entries that describe a function: an inlined call, its abstract
// instance, a declaration. It also ends cycles.
const maxOrigins = 8

// entry holds the attributes of an entry that name a function.
type entry struct {
	name, linkage               value
	hasName, hasLinkage         bool
	line                        uint64
	origin, specification       ref
	hasOrigin, hasSpecification bool
}

// readEntry reads the entry at a reference from b, which may lead to another unit or
// file. It returns that unit too, since values depend on it.
func (b *body) readEntry(at ref) (*unit, entry, error) {
	var e entry
	if !at.alt && at.off >= b.first && at.off < b.end && b.raw != nil {
		r := b.at(at.off - b.off)
		if e.parse(b.unit, b.abbrevs, r); r.Bad {
			return b.unit, e, b.errorAt(int(at.off-b.off), "malformed entry of a function")
		}
		return b.unit, e, nil
	}
	f := b.file
	if at.alt {
		if f = b.file.alt; f == nil {
			return nil, e, b.file.noAlt()
		}
	}
	u := f.unitAt(at.off)
	if u == nil || at.off < u.first {
		return nil, e, f.info.errorf(at.off, "reference to an entry outside of all units")
	}
	if err := u.readRoot(); err != nil {
		return nil, e, err
	}
	abbrevs, err := f.readAbbrevs(u.abbrevOff, u.format)
	if err != nil {
		return nil, e, err
	}
	err = f.info.parse(at.off, 128, u.end-at.off, func(r *dwarfdata.Reader) bool {
		e = entry{}
		e.parse(u, abbrevs, r)
		return !r.Bad
	})
	return u, e, err
}

// parse reads the entry at r. r becomes bad if there is none.
func (e *entry) parse(u *unit, t *abbrevs, r *dwarfdata.Reader) {
	a := t.get(r.ULEB())
	if a == nil {
		r.Fail()
		return
	}
	for _, at := range a.attrs {
		v := readValue(r, at, u.format)
		switch at.name {
		case attrName:
			e.name, e.hasName = v, true
		case attrLinkageName, attrMIPSLinkageName:
			e.linkage, e.hasLinkage = v, true
		case attrDeclLine:
			e.line = v.u
		case attrAbstractOrigin:
			e.origin, e.hasOrigin = u.ref(v)
		case attrSpecification:
			e.specification, e.hasSpecification = u.ref(v)
		}
	}
}

// function reads the description of a function from the entry at a reference and the
// entries to which it refers.
func (b *body) function(at ref) (*Function, error) {
	fn := &Function{}
	// The source name is used only if no entry has a linkage name.
	var name value
	var nameUnit *unit
	var err error
	from := b
	for range maxOrigins {
		var u *unit
		var e entry
		if u, e, err = from.readEntry(at); err != nil {
			break
		}
		if nameUnit == nil && e.hasName {
			name, nameUnit = e.name, u
		}
		if !fn.Linkage && e.hasLinkage {
			fn.Linkage = true
			if fn.Name, err = u.text(e.linkage); err != nil {
				break
			}
		}
		if fn.StartLine == 0 {
			fn.StartLine = int(min(e.line, 1<<31-1))
		}
		if fn.Linkage && fn.StartLine != 0 {
			break
		}
		if !e.hasOrigin {
			e.origin, e.hasOrigin = e.specification, e.hasSpecification
		}
		if !e.hasOrigin {
			break
		}
		at = e.origin
		if u != from.unit {
			from = &body{unit: u}
		}
	}
	if fn.Name == "" && nameUnit != nil {
		fn.Linkage = false
		text, textErr := nameUnit.text(name)
		fn.Name = text
		if err == nil {
			err = textErr
		}
	}
	return fn, err
}
