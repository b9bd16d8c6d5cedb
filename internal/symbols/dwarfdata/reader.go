// Package dwarfdata reads the encodings used by DWARF and call frame information (DWARF
// 5, 7.4 to 7.6) from untrusted bytes.
package dwarfdata

import (
	"bytes"
	"encoding/binary"
)

// Reader reads little-endian data. Reading past the end sets Bad, and from then on reads
// return zeros, so a sequence of reads needs only one check at its end.
type Reader struct {
	// Data is the input. Pos is the offset of the next read.
	Data []byte
	Pos  int
	// Bad is whether a read exceeded the input, or a value was invalid.
	Bad bool
}

// Left returns the number of remaining bytes.
func (r *Reader) Left() int { return len(r.Data) - r.Pos }

// Fail sets Bad and skips the rest.
func (r *Reader) Fail() {
	r.Bad = true
	r.Pos = len(r.Data)
}

// Take returns the next n bytes.
func (r *Reader) Take(n uint64) []byte {
	if n > uint64(r.Left()) {
		r.Fail()
		return nil
	}
	b := r.Data[r.Pos : r.Pos+int(n)]
	r.Pos += int(n)
	return b
}

// Skip skips the next n bytes.
func (r *Reader) Skip(n uint64) { r.Take(n) }

// U8 reads a byte.
func (r *Reader) U8() uint8 {
	if r.Pos >= len(r.Data) {
		r.Fail()
		return 0
	}
	v := r.Data[r.Pos]
	r.Pos++
	return v
}

// U16 reads a 2-byte number.
func (r *Reader) U16() uint16 {
	if b := r.Take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// U24 reads a 3-byte number.
func (r *Reader) U24() uint32 {
	if b := r.Take(3); b != nil {
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
	}
	return 0
}

// U32 reads a 4-byte number.
func (r *Reader) U32() uint32 {
	if b := r.Take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// U64 reads an 8-byte number.
func (r *Reader) U64() uint64 {
	if b := r.Take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Word reads a number of size bytes: an address or an offset.
func (r *Reader) Word(size uint8) uint64 {
	switch size {
	case 1:
		return uint64(r.U8())
	case 2:
		return uint64(r.U16())
	case 4:
		return uint64(r.U32())
	case 8:
		return r.U64()
	}
	r.Fail()
	return 0
}

// ULEB reads an unsigned LEB128 number and drops bits beyond the 64th.
func (r *Reader) ULEB() uint64 {
	if r.Pos < len(r.Data) && r.Data[r.Pos] < 0x80 {
		r.Pos++
		return uint64(r.Data[r.Pos-1])
	}
	var v uint64
	for shift := uint(0); r.Pos < len(r.Data); shift += 7 {
		c := r.Data[r.Pos]
		r.Pos++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.Fail()
	return 0
}

// SLEB reads a signed LEB128 number and drops bits beyond the 64th.
func (r *Reader) SLEB() int64 {
	var v int64
	for shift := uint(0); r.Pos < len(r.Data); {
		c := r.Data[r.Pos]
		r.Pos++
		v |= int64(c&0x7f) << shift
		shift += 7
		if c < 0x80 {
			if shift < 64 && c&0x40 != 0 {
				v |= -1 << shift
			}
			return v
		}
	}
	r.Fail()
	return 0
}

// CString reads a string up to a zero byte and returns it without the zero.
func (r *Reader) CString() []byte {
	n := bytes.IndexByte(r.Data[r.Pos:], 0)
	if n < 0 {
		r.Fail()
		return nil
	}
	s := r.Data[r.Pos : r.Pos+n]
	r.Pos += n + 1
	return s
}

// UnitLength reads an initial length (7.4) and the implied size of offsets.
func (r *Reader) UnitLength() (length uint64, offsetSize uint8) {
	length = uint64(r.U32())
	switch {
	case length < 0xfffffff0:
		return length, 4
	case length == 0xffffffff:
		return r.U64(), 8
	}
	r.Fail() // reserved
	return 0, 4
}

// Block reads a length and that many bytes.
func (r *Reader) Block() []byte { return r.Take(r.ULEB()) }
