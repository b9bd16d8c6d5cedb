package instruction

import "encoding/binary"

// Encoding is an x86-64 instruction taken apart, for callers that interpret some instructions.
type Encoding struct {
	// Map is the opcode map: 0 for opcodes of one byte, 1 for 0f, 2 for 0f 38 and 3 for 0f 3a. Vector
	// is whether the instruction has a VEX or EVEX prefix.
	Map    uint8
	Opcode byte
	Vector bool
	// Wide is whether the operand has 64 bits by REX.W, and Narrow whether it has 16 by a prefix.
	Wide, Narrow bool
	// Extended is whether there is a REX prefix: without, the registers 4 to 7 of one byte are parts of the
	// registers 0 to 3.
	Extended bool
	// Repeat is whether there is the prefix f3, or its equivalent in a VEX or EVEX prefix.
	Repeat bool
	// Segment is whether the operand in memory is relative to FS or GS.
	Segment bool
	// HasOperand is whether there is a ModRM byte: Register is the number in its middle field, with the
	// bit from REX, or part of the opcode. Operand is the other operand.
	HasOperand bool
	Register   uint8
	Operand    Operand
	// Second is the register in a VEX or EVEX prefix.
	Second uint8
	// Low is the register in the low bits of a one-byte opcode or of BSWAP, with the bit from REX.
	Low uint8
	// Immediate is the immediate operand, sign-extended; 0 if there is none.
	Immediate int64
}

// TakeApart returns the encoding of an x86-64 instruction that [DecodeX86] decoded. code is the
// instruction and nothing more.
func TakeApart(code []byte) Encoding {
	r := &reader{code: code}
	var e Encoding
	var p prefixes
	op := r.byte()
	for isPrefix(op) && !r.bad {
		e.Segment = e.Segment || op == 0x64 || op == 0x65
		e.Repeat = e.Repeat || op == 0xf3
		p.operandSize = p.operandSize || op == 0x66
		op = r.byte()
	}
	if op&0xf0 == 0x40 {
		p.rex, e.Extended = op, true
		op = r.byte()
	}
	switch op {
	case 0x0f:
		e.Map, op = 1, r.byte()
		switch op {
		case 0x38:
			e.Map, op = 2, r.byte()
		case 0x3a:
			e.Map, op = 3, r.byte()
		}
	case 0xc4, 0xc5, 0x62:
		op = e.vector(r, &p, op)
	}
	e.Opcode, e.Wide, e.Narrow = op, p.wide(), p.operandSize
	e.Low = op&7 | p.rex&1<<3
	if e.HasOperand = e.hasOperand(); e.HasOperand {
		m := r.modRM(p)
		e.Register, e.Operand = m.reg|p.rex&4<<1, m.operand
	}
	e.Immediate = r.rest()
	return e
}

// vector reads the rest of a VEX or EVEX prefix, whose first byte is first, and returns the opcode.
func (e *Encoding) vector(r *reader, p *prefixes, first byte) byte {
	e.Vector = true
	b := r.byte()
	p.rex = 0x40 | (^b>>5)&4 // the bits are inverted
	e.Map = 1
	if first != 0xc5 {
		p.rex = 0x40 | (^b>>5)&7
		e.Map = b & 31
		if first == 0x62 {
			e.Map = b & 7
		}
		b = r.byte()
		p.rex |= b >> 7 << 3
	}
	e.Second = ^b >> 3 & 15
	p.operandSize, e.Repeat = b&3 == 1, b&3 == 2
	if first == 0x62 {
		r.byte()
	}
	return r.byte()
}

// hasOperand reports whether the instruction has a ModRM byte.
func (e *Encoding) hasOperand() bool {
	op := e.Opcode
	switch {
	case e.Vector:
		return e.Map != 1 || op != 0x77
	case e.Map > 1:
		return true
	case e.Map == 1:
		switch {
		case op >= 0x80 && op <= 0x8f, op >= 0xc8 && op <= 0xcf, op >= 0x30 && op <= 0x37:
			return false
		}
		switch op {
		case 0x05, 0x06, 0x08, 0x09, 0x0b, 0x77, 0xa0, 0xa1, 0xa2, 0xa8, 0xa9, 0xaa:
			return false
		}
		return true
	case op < 0x40:
		return op&7 < 4
	case op >= 0x84 && op <= 0x8f, op >= 0xd0 && op <= 0xd3, op >= 0xd8 && op <= 0xdf:
		return true
	}
	switch op {
	case 0x63, 0x69, 0x6b, 0x80, 0x81, 0x83, 0xc0, 0xc1, 0xc6, 0xc7, 0xf6, 0xf7, 0xfe, 0xff:
		return true
	}
	return false
}

// rest returns the remaining bytes as a number.
func (r *reader) rest() int64 {
	b := r.code[min(r.at, len(r.code)):]
	switch len(b) {
	case 1:
		return int64(int8(b[0]))
	case 2, 3:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case 4, 5, 6, 7:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	case 8:
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}
