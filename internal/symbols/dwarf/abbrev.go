package dwarf

import (
	"slices"
	"sync"

	"fulgur/internal/symbols/dwarfdata"
)

const (
	// maxAbbrevs bounds an abbreviation table. Tables of link-time optimized programs
	// have a few thousand entries.
	maxAbbrevs = 1 << 20
	// maxAbbrevBytes bounds its encoded size.
	maxAbbrevBytes = 64 << 20
	// maxTables is the number of cached tables. Most units have their own table, so few
	// tables are used twice.
	maxTables = 16
)

// attr is an attribute of an abbreviation.
type attr struct {
	name, form uint16
	implicit   int32 // value of DW_FORM_implicit_const; -1 if it is larger
}

// kind determines how a walk treats an entry.
type kind uint8

const (
	kindOther    kind = iota // no code in or below it
	kindScope                // may contain functions or inlined functions
	kindType                 // rarely contains functions
	kindFunction             // DW_TAG_subprogram
	kindInlined              // DW_TAG_inlined_subroutine
)

func kindOf(tag uint64) kind {
	switch tag {
	case tagSubprogram:
		return kindFunction
	case tagInlinedSubroutine:
		return kindInlined
	case tagNamespace, tagModule, tagLexicalBlock, tagTryBlock, tagCatchBlock, tagWithStmt:
		return kindScope
	case tagStructureType, tagClassType, tagUnionType, tagInterfaceType, tagEnumerationType:
		return kindType
	}
	return kindOther
}

// abbrev is a decoded abbreviation (7.5.3): the layout of an entry.
type abbrev struct {
	kind     kind
	children bool
	code     bool // may have addresses
	// sibling is the number of bytes from the value of DW_AT_sibling to the end of the
	// entry's attributes, or 0 if the value cannot be located this way.
	sibling     uint8
	siblingForm uint16
	attrs       []attr
	// To skip the entry's attributes: perform steps, then skip tail bytes.
	steps []step
	tail  uint32
}

// step skips a fixed number of bytes, and then a value of variable size.
type step struct {
	fixed uint32
	form  uint16 // form of that value, reduced to one with the same layout
}

// abbrevs is an abbreviation table. Compilers number codes from 1; sparse holds the index
// of any others.
type abbrevs struct {
	dense  []abbrev
	sparse map[uint64]int
	// Shared by the entries. If append reallocates it, earlier entries keep the old array.
	attrs []attr
	steps []step
}

// get returns the abbreviation with a code, or nil.
func (t *abbrevs) get(code uint64) *abbrev {
	if t.sparse == nil {
		if code-1 < uint64(len(t.dense)) {
			return &t.dense[code-1]
		}
		return nil
	}
	if i, ok := t.sparse[code]; ok {
		return &t.dense[i]
	}
	return nil
}

// add appends an abbreviation. If a code occurs twice, the first one wins.
func (t *abbrevs) add(code uint64, a abbrev) {
	n := len(t.dense)
	t.dense = append(t.dense, a)
	if t.sparse == nil {
		if code == uint64(n)+1 {
			return
		}
		t.sparse = make(map[uint64]int, n+1)
		for i := range n {
			t.sparse[uint64(i)+1] = i
		}
	}
	if _, ok := t.sparse[code]; !ok {
		t.sparse[code] = n
	}
}

// format holds the properties of a unit that determine the layout of attributes, together
// with their forms.
type format struct {
	version    uint16
	addrSize   uint8
	offsetSize uint8
}

// refAddrSize returns the size of DW_FORM_ref_addr.
func (f format) refAddrSize() uint8 {
	if f.version <= 2 {
		return f.addrSize
	}
	return f.offsetSize
}

// fixedSize returns the size of values of a form. ok is false if it is not constant.
func (f format) fixedSize(form uint16) (size uint8, ok bool) {
	switch form {
	case formFlagPresent, formImplicitConst:
		return 0, true
	case formData1, formRef1, formFlag, formStrx1, formAddrx1:
		return 1, true
	case formData2, formRef2, formStrx2, formAddrx2:
		return 2, true
	case formStrx3, formAddrx3:
		return 3, true
	case formData4, formRef4, formRefSup4, formStrx4, formAddrx4:
		return 4, true
	case formData8, formRef8, formRefSig8, formRefSup8:
		return 8, true
	case formData16:
		return 16, true
	case formAddr:
		return f.addrSize, true
	case formRefAddr:
		return f.refAddrSize(), true
	case formStrp, formSecOffset, formStrpSup, formLineStrp, formGNURefAlt, formGNUStrpAlt:
		return f.offsetSize, true
	}
	return 0, false
}

// layout maps a form of variable size to the form that stands for all forms of its layout.
func layout(form uint16) (uint16, bool) {
	switch form {
	case formUdata, formSdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx,
		formGNUAddrIndex, formGNUStrIndex:
		return formUdata, true
	case formBlock, formExprloc:
		return formBlock, true
	case formString, formBlock1, formBlock2, formBlock4, formIndirect:
		return form, true
	}
	return 0, false
}

// compile computes the steps to skip the entry, appending them to the steps of a table.
// It fails for a form of unknown size.
func (a *abbrev) compile(f format, steps []step) ([]step, bool) {
	first := len(steps)
	fixed := uint32(0)
	for _, at := range a.attrs {
		if at.name == attrHighPC || at.name == attrRanges {
			a.code = true
		}
		if size, ok := f.fixedSize(at.form); ok {
			fixed += uint32(size)
			continue
		}
		form, ok := layout(at.form)
		if !ok {
			return steps, false
		}
		steps = append(steps, step{fixed: fixed, form: form})
		fixed = 0
	}
	a.steps = steps[first:len(steps):len(steps)]
	a.tail = fixed
	behind := 0
	for _, at := range slices.Backward(a.attrs) {
		size, ok := f.fixedSize(at.form)
		behind += int(size)
		if !ok || behind > 255 {
			break
		}
		if at.name == attrSibling {
			switch at.form {
			case formRef1, formRef2, formRef4, formRef8:
				a.sibling, a.siblingForm = uint8(behind), at.form
			}
			break
		}
	}
	return steps, true
}

// skip skips the entry's attributes.
func (a *abbrev) skip(r *dwarfdata.Reader) {
	for _, s := range a.steps {
		r.Skip(uint64(s.fixed))
		switch s.form {
		case formUdata:
			for r.U8() >= 0x80 {
			}
		case formBlock:
			r.Skip(r.ULEB())
		case formString:
			r.CString()
		case formBlock1:
			r.Skip(uint64(r.U8()))
		case formBlock2:
			r.Skip(uint64(r.U16()))
		case formBlock4:
			r.Skip(uint64(r.U32()))
		default:
			// An indirect form is known only here, and compilers do not write it.
			r.Fail()
		}
	}
	r.Skip(uint64(a.tail))
}

// after returns the position after this entry and its children, if there is a
// DW_AT_sibling. r is after the attributes; its data begins with the unit.
func (a *abbrev) after(r *dwarfdata.Reader) (pos int, ok bool) {
	if a.sibling == 0 || r.Bad {
		return 0, false
	}
	s := dwarfdata.Reader{Data: r.Data, Pos: r.Pos - int(a.sibling)}
	var v uint64
	switch a.siblingForm {
	case formRef1:
		v = uint64(s.U8())
	case formRef2:
		v = uint64(s.U16())
	case formRef4:
		v = uint64(s.U32())
	default:
		v = s.U64()
	}
	// A sibling that points backwards would cause an endless loop.
	if v < uint64(r.Pos) || v > uint64(len(r.Data)) {
		return 0, false
	}
	return int(v), true
}

// parse decodes a table, or only its first entry, and returns a description of any error.
// It reuses the memory of the previous table.
func (t *abbrevs) parse(r *dwarfdata.Reader, f format, firstOnly bool) string {
	t.dense, t.attrs, t.steps, t.sparse = t.dense[:0], t.attrs[:0], t.steps[:0], nil
	for {
		code := r.ULEB()
		if code == 0 || r.Bad {
			return ""
		}
		if len(t.dense) == maxAbbrevs {
			return "abbreviation table of too many entries"
		}
		a := abbrev{kind: kindOf(r.ULEB()), children: r.U8() != 0}
		first := len(t.attrs)
		for {
			name, form := r.ULEB(), r.ULEB()
			if name == 0 && form == 0 {
				break
			}
			at := attr{name: uint16(min(name, 0xffff)), form: uint16(min(form, 0xffff))}
			if form == formImplicitConst {
				at.implicit = -1
				if v := r.SLEB(); v == int64(int32(v)) {
					at.implicit = int32(v)
				}
			}
			t.attrs = append(t.attrs, at)
		}
		if r.Bad {
			return ""
		}
		a.attrs = t.attrs[first:len(t.attrs):len(t.attrs)]
		var ok bool
		if t.steps, ok = a.compile(f, t.steps); !ok {
			return "abbreviation with an unknown form"
		}
		t.add(code, a)
		if firstOnly {
			return ""
		}
	}
}

// abbrevKey identifies a table. Its decoding depends on the format of the unit.
type abbrevKey struct {
	off uint64
	format
}

// abbrevCache keeps the most recently used tables.
type abbrevCache struct {
	mu     sync.Mutex
	tables map[abbrevKey]*abbrevs
	order  []abbrevKey
}

func (c *abbrevCache) get(key abbrevKey) *abbrevs {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tables[key]
}

func (c *abbrevCache) put(key abbrevKey, t *abbrevs) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tables == nil {
		c.tables = map[abbrevKey]*abbrevs{}
	}
	if c.tables[key] == nil {
		if len(c.order) == maxTables {
			delete(c.tables, c.order[0])
			c.order = slices.Delete(c.order, 0, 1)
		}
		c.order = append(c.order, key)
	}
	c.tables[key] = t
}

// readAbbrevs reads the table at off of a file's .debug_abbrev.
func (f *file) readAbbrevs(off uint64, fm format) (*abbrevs, error) {
	key := abbrevKey{off, fm}
	if t := f.tables.get(key); t != nil {
		return t, nil
	}
	t := &abbrevs{}
	if err := f.parseAbbrevs(t, off, fm, false); err != nil {
		return nil, err
	}
	f.tables.put(key, t)
	return t, nil
}

// parseAbbrevs decodes the table at off, or only its first entry, into t.
func (f *file) parseAbbrevs(t *abbrevs, off uint64, fm format, firstOnly bool) error {
	first := uint64(4 << 10)
	if firstOnly {
		first = 64
	}
	problem := ""
	err := f.abbrev.parse(off, first, maxAbbrevBytes, func(r *dwarfdata.Reader) bool {
		problem = t.parse(r, fm, firstOnly)
		return problem != "" || !r.Bad
	})
	if err == nil && problem != "" {
		err = f.abbrev.errorf(off, "%s", problem)
	}
	return err
}
