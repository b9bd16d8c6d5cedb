package callframe

import "fulgur/internal/symbols/dwarfdata"

// Pointer encodings (Linux Standard Base, "DWARF Extensions"): a format in the low four
// bits, a base in the next three.
const (
	peFormat   = 0x0f
	peULEB128  = 0x01
	peUdata2   = 0x02
	peUdata4   = 0x03
	peUdata8   = 0x04
	peSigned   = 0x08
	peSLEB128  = 0x09
	peSdata2   = 0x0a
	peSdata4   = 0x0b
	peSdata8   = 0x0c
	peRelative = 0x70
	pePCRel    = 0x10
	peDataRel  = 0x30
	peIndirect = 0x80
	peOmit     = 0xff
)

// ReadPointer reads an encoded pointer. base is the address of r's first byte, and data
// the base of data-relative pointers. Other bases make r bad.
func ReadPointer(r *dwarfdata.Reader, enc, addrSize uint8, base, data uint64) uint64 {
	at := base + uint64(r.Pos)
	v := readEncoded(r, enc, addrSize)
	switch enc & (peRelative | peIndirect) {
	case 0:
	case pePCRel:
		v += at
	case peDataRel:
		v += data
	default:
		r.Fail()
	}
	if addrSize == 4 {
		v = uint64(uint32(v))
	}
	return v
}

// readEncoded reads a number in a pointer format.
func readEncoded(r *dwarfdata.Reader, enc, addrSize uint8) uint64 {
	switch enc & peFormat {
	case 0, peSigned:
		return r.Word(addrSize)
	case peULEB128:
		return r.ULEB()
	case peUdata2:
		return r.Word(2)
	case peUdata4:
		return r.Word(4)
	case peUdata8, peSdata8:
		return r.Word(8)
	case peSLEB128:
		return uint64(r.SLEB())
	case peSdata2:
		return uint64(int16(r.Word(2)))
	case peSdata4:
		return uint64(int32(r.Word(4)))
	}
	r.Fail()
	return 0
}
