package unwind

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

// uint reads a number of size bytes: 1, 2, 4 or 8.
func (r *buf) uint(size uint8) uint64 {
	b := r.take(uint64(size))
	switch {
	case b == nil:
		return 0
	case size == 1:
		return uint64(b[0])
	case size == 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case size == 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case size == 8:
		return binary.LittleEndian.Uint64(b)
	}
	r.fail()
	return 0
}

func (r *buf) u8() uint8 {
	if r.pos >= len(r.b) {
		r.fail()
		return 0
	}
	r.pos++
	return r.b[r.pos-1]
}

// uleb reads an unsigned LEB128 number; bits beyond the 64th are dropped.
func (r *buf) uleb() uint64 {
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

// block reads a length and that many bytes.
func (r *buf) block() []byte { return r.take(r.uleb()) }
