package dwarf

import "fulgur/internal/symbols/dwarfdata"

// value is an attribute's encoded value. The meaning of u depends on the form: a
// constant, an address, an offset into a section, an index.
type value struct {
	form uint16
	u    uint64
	// inline is the text of DW_FORM_string. It is valid as long as the bytes of the unit.
	inline []byte
}

// readValue reads a value of a form. It fails on unknown forms, and skips blocks.
func readValue(r *dwarfdata.Reader, at attr, f format) value {
	v := value{form: at.form}
	for v.form == formIndirect {
		v.form = uint16(min(r.ULEB(), 0xffff))
		if r.Bad {
			return v
		}
	}
	switch v.form {
	case formImplicitConst:
		v.u = uint64(int64(at.implicit))
	case formFlagPresent:
		v.u = 1
	case formSdata:
		v.u = uint64(r.SLEB())
	case formString:
		v.inline = r.CString()
	case formData16:
		r.Skip(16)
	case formBlock, formExprloc:
		r.Skip(r.ULEB())
	case formBlock1:
		r.Skip(uint64(r.U8()))
	case formBlock2:
		r.Skip(uint64(r.U16()))
	case formBlock4:
		r.Skip(uint64(r.U32()))
	case formStrx3, formAddrx3:
		v.u = uint64(r.U24())
	default:
		if size, ok := f.fixedSize(v.form); ok {
			v.u = r.Word(size)
		} else if _, ok := layout(v.form); ok {
			v.u = r.ULEB()
		} else {
			r.Fail()
		}
	}
	return v
}

// isConstant distinguishes constants from addresses and references, as needed for
// DW_AT_high_pc.
func (v value) isConstant() bool {
	switch v.form {
	case formData1, formData2, formData4, formData8, formUdata, formSdata, formImplicitConst:
		return true
	}
	return false
}

// addrIndex reports whether v is an index into .debug_addr.
func (v value) addrIndex() bool {
	switch v.form {
	case formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4, formGNUAddrIndex:
		return true
	}
	return false
}

// strIndex reports whether v is an index into .debug_str_offsets.
func (v value) strIndex() bool {
	switch v.form {
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		return true
	}
	return false
}

// address resolves a value of class address.
func (u *unit) address(v value) (uint64, error) {
	switch {
	case v.addrIndex():
		return u.indexedAddress(v.u)
	case v.form == formAddr:
		return v.u, nil
	}
	return 0, u.errorf("address of form %#x", v.form)
}

// indexedAddress returns an entry of the unit's part of .debug_addr (7.27).
func (u *unit) indexedAddress(index uint64) (uint64, error) {
	p := u.root.addrFile.addr
	if index >= p.size/uint64(u.addrSize) {
		return 0, p.errorf(u.root.addrBase, "no address with index %d", index)
	}
	return p.word(u.root.addrBase+index*uint64(u.addrSize), u.addrSize)
}

// text resolves a value of class string, truncated to maxString.
func (u *unit) text(v value) (string, error) {
	f := u.file
	switch {
	case v.form == formString:
		return f.strs.bounded(string(v.inline[:min(len(v.inline), maxString)])), nil
	case v.form == formStrp:
		return f.strs.at(v.u)
	case v.form == formLineStrp:
		return f.lineStrs.at(v.u)
	case v.form == formStrpSup, v.form == formGNUStrpAlt:
		if f.alt == nil {
			return "", f.noAlt()
		}
		return f.alt.strs.at(v.u)
	case v.strIndex():
		p := f.strOffsets
		if v.u >= p.size/uint64(u.offsetSize) {
			return "", p.errorf(u.root.strOffsetsBase, "no string with index %d", v.u)
		}
		off, err := p.word(u.root.strOffsetsBase+v.u*uint64(u.offsetSize), u.offsetSize)
		if err != nil {
			return "", err
		}
		return f.strs.at(off)
	}
	return "", u.errorf("string of form %#x", v.form)
}

// ref is the location of an entry: an offset into .debug_info of a file, or of the
// alternate file made by dwz.
type ref struct {
	off uint64
	alt bool
}

// ref resolves a value of class reference, except references to type units, which contain
// no functions.
func (u *unit) ref(v value) (ref, bool) {
	switch v.form {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		if v.u >= u.end-u.off {
			return ref{}, false
		}
		return ref{off: u.off + v.u}, true
	case formRefAddr:
		return ref{off: v.u}, true
	case formGNURefAlt, formRefSup4, formRefSup8:
		return ref{off: v.u, alt: true}, true
	}
	return ref{}, false
}
