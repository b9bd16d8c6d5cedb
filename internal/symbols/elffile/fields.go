package elffile

import "encoding/binary"

// fields reads the fields of a structure that exists in both ELF classes. Each method
// takes the field's offset in the 32-bit and in the 64-bit structure.
type fields struct {
	b    []byte
	is64 bool
}

func (f fields) at(class32, class64 int) []byte {
	if f.is64 {
		return f.b[class64:]
	}
	return f.b[class32:]
}

func (f fields) byte(class32, class64 int) byte { return f.at(class32, class64)[0] }

func (f fields) half(class32, class64 int) int {
	return int(binary.LittleEndian.Uint16(f.at(class32, class64)))
}

func (f fields) uint32(class32, class64 int) uint32 {
	return binary.LittleEndian.Uint32(f.at(class32, class64))
}

// word reads an address-sized field.
func (f fields) word(class32, class64 int) uint64 {
	if f.is64 {
		return binary.LittleEndian.Uint64(f.b[class64:])
	}
	return uint64(binary.LittleEndian.Uint32(f.b[class32:]))
}
