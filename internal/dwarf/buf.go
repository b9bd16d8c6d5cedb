package dwarf

import (
	"bytes"
	"encoding/binary"
)

// buf reads little-endian data. Reading past its end makes it bad and returns
// zeros from then on, so that a sequence of reads needs one check at its end.
type buf struct {
	b   []byte
	pos int
	bad bool
}

func (r *buf) left() int { return len(r.b) - r.pos }

func (r *buf) fail() {
	r.bad = true
	r.pos = len(r.b)
}

// take returns the next n bytes.
func (r *buf) take(n uint64) []byte {
	if n > uint64(r.left()) {
		r.fail()
		return nil
	}
	b := r.b[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return b
}

func (r *buf) skip(n uint64) { r.take(n) }

func (r *buf) u8() uint8 {
	if r.pos >= len(r.b) {
		r.fail()
		return 0
	}
	v := r.b[r.pos]
	r.pos++
	return v
}

func (r *buf) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *buf) u24() uint32 {
	if b := r.take(3); b != nil {
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
	}
	return 0
}

func (r *buf) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *buf) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// word reads a number of size bytes: an address or an offset.
func (r *buf) word(size uint8) uint64 {
	switch size {
	case 1:
		return uint64(r.u8())
	case 2:
		return uint64(r.u16())
	case 4:
		return uint64(r.u32())
	case 8:
		return r.u64()
	}
	r.fail()
	return 0
}

// uleb reads an unsigned LEB128 number; bits beyond the 64th are dropped.
func (r *buf) uleb() uint64 {
	if r.pos < len(r.b) && r.b[r.pos] < 0x80 {
		r.pos++
		return uint64(r.b[r.pos-1])
	}
	var v uint64
	for shift := uint(0); r.pos < len(r.b); shift += 7 {
		c := r.b[r.pos]
		r.pos++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.fail()
	return 0
}

// sleb reads a signed LEB128 number; bits beyond the 64th are dropped.
func (r *buf) sleb() int64 {
	var v int64
	for shift := uint(0); r.pos < len(r.b); {
		c := r.b[r.pos]
		r.pos++
		v |= int64(c&0x7f) << shift
		shift += 7
		if c < 0x80 {
			if shift < 64 && c&0x40 != 0 {
				v |= -1 << shift
			}
			return v
		}
	}
	r.fail()
	return 0
}

// cstring reads up to a zero byte and returns what precedes it.
func (r *buf) cstring() []byte {
	n := bytes.IndexByte(r.b[r.pos:], 0)
	if n < 0 {
		r.fail()
		return nil
	}
	s := r.b[r.pos : r.pos+n]
	r.pos += n + 1
	return s
}

// unitLength reads an initial length (7.4) and the size of offsets that it
// implies.
func (r *buf) unitLength() (length uint64, offsetSize uint8) {
	length = uint64(r.u32())
	switch {
	case length < 0xfffffff0:
		return length, 4
	case length == 0xffffffff:
		return r.u64(), 8
	}
	r.fail() // reserved
	return 0, 4
}
