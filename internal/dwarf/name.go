package dwarf

// subname is what entries say of a function.
type subname struct {
	name, linkage string
	line          int // of the declaration
}

// maxOrigins bounds how many entries tell about one function: an inlined call,
// its abstract instance, a declaration. It also ends cycles.
const maxOrigins = 8

// entry holds the attributes that name a function, of one entry.
type entry struct {
	name, linkage               value
	hasName, hasLinkage         bool
	line                        uint64
	origin, specification       ref
	hasOrigin, hasSpecification bool
}

// readEntry reads the entry at a reference from b, which may stand in another
// unit or file. It returns the unit too: values depend on it.
func (b *body) readEntry(at ref) (*unit, entry, error) {
	var e entry
	if !at.alt && at.off >= b.first && at.off < b.end && b.raw != nil {
		r := b.at(at.off - b.off)
		if e.parse(b.unit, b.abbrevs, r); r.bad {
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
	err = f.info.parse(at.off, 128, u.end-at.off, func(r *buf) bool {
		e = entry{}
		e.parse(u, abbrevs, r)
		return !r.bad
	})
	return u, e, err
}

// parse reads the entry at r; r gets bad if there is none.
func (e *entry) parse(u *unit, t *abbrevs, r *buf) {
	a := t.get(r.uleb())
	if a == nil {
		r.fail()
		return
	}
	for _, at := range a.attrs {
		v := r.value(at, u.format)
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

// subname reads the names of a function, from the entry at a reference and
// those that it refers to.
func (b *body) subname(at ref) (*subname, error) {
	n := &subname{}
	from := b
	for range maxOrigins {
		u, e, err := from.readEntry(at)
		if err != nil {
			return n, err
		}
		if n.name == "" && e.hasName {
			if n.name, err = u.text(e.name); err != nil {
				return n, err
			}
		}
		if n.linkage == "" && e.hasLinkage {
			if n.linkage, err = u.text(e.linkage); err != nil {
				return n, err
			}
		}
		if n.line == 0 {
			n.line = int(min(e.line, 1<<31-1))
		}
		if n.name != "" && n.linkage != "" && n.line != 0 {
			break
		}
		switch {
		case e.hasOrigin:
			at = e.origin
		case e.hasSpecification:
			at = e.specification
		default:
			return n, nil
		}
		if u != from.unit {
			from = &body{unit: u}
		}
	}
	return n, nil
}
