package instruction

import "encoding/binary"

// reader reads the bytes of one instruction.
type reader struct {
	code []byte
	at   int
	bad  bool // read beyond the end
	// relative is whether an operand is relative to the instruction, by a displacement in bytes.
	relative     bool
	displacement int64
}

func (r *reader) byte() byte {
	if r.at >= len(r.code) {
		r.bad = true
		return 0
	}
	b := r.code[r.at]
	r.at++
	return b
}

func (r *reader) skip(n int) {
	r.at += n
	if r.at > len(r.code) {
		r.bad = true
	}
}

// signed reads a signed number of 1 or 4 bytes.
func (r *reader) signed(size int) int64 {
	r.skip(size)
	switch {
	case r.bad:
		return 0
	case size == 1:
		return int64(int8(r.code[r.at-1]))
	}
	return int64(int32(binary.LittleEndian.Uint32(r.code[r.at-4:])))
}

// prefixes are the prefixes of an instruction.
type prefixes struct {
	any         bool
	segment     bool // 64, 65
	operandSize bool // 66
	addressSize bool // 67
	rex         byte // 0 if there is none
}

func (p prefixes) wide() bool { return p.rex&8 != 0 }

// immediate returns the size of an immediate operand of the operand's size: 4 bytes for
// an operand of 64 bits.
func (p prefixes) immediate() int {
	if p.operandSize && !p.wide() {
		return 2
	}
	return 4
}

// modRM is a decoded ModRM byte with its SIB byte and displacement.
type modRM struct {
	reg     byte // the middle field
	operand Operand
}

// DecodeX86 decodes the x86-64 instruction at the beginning of code, which is at address. It
// reports false if it does not know the instruction, or if code ends within it.
func DecodeX86(code []byte, address uint64) (Instruction, bool) {
	r := &reader{code: code[:min(len(code), maxSize)]}
	var p prefixes
	op := r.byte()
	for isPrefix(op) {
		p.any = true
		p.segment = p.segment || op == 0x64 || op == 0x65
		p.operandSize = p.operandSize || op == 0x66
		p.addressSize = p.addressSize || op == 0x67
		op = r.byte()
	}
	if op&0xf0 == 0x40 {
		p.rex = op
		op = r.byte()
	}
	i := Instruction{Prefixed: p.any}
	var ok bool
	switch op {
	case 0x0f:
		ok = r.twoByte(&i, p)
	case 0xc4, 0xc5, 0x62:
		ok = p.rex == 0 && !p.operandSize && r.vector(op)
	default:
		ok = r.oneByte(&i, op, p)
	}
	i.Size = r.at
	if !ok || r.bad {
		return Instruction{}, false
	}
	if r.relative {
		i.Reference = address + uint64(i.Size) + uint64(r.displacement)
	}
	switch i.Kind {
	case ConditionalJump, CounterJump, Jump, Call:
		i.Target += address + uint64(i.Size) // i.Target was only the displacement
	}
	return i, true
}

func isPrefix(b byte) bool {
	switch b {
	case 0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65:
		return true
	}
	return false
}

// modRM reads a ModRM byte, and the SIB byte and displacement after it.
func (r *reader) modRM(p prefixes) modRM {
	b := r.byte()
	mod, rm := b>>6, b&7
	m := modRM{reg: b >> 3 & 7, operand: Operand{Base: rm | p.rex&1<<3, Index: NoRegister, Scale: 1}}
	if mod == 3 {
		return m
	}
	o := &m.operand
	o.Memory = true
	if rm == 4 {
		sib := r.byte()
		o.Base = sib&7 | p.rex&1<<3
		if index := sib>>3&7 | p.rex&2<<2; index != 4 { // 4 is rsp
			o.Index, o.Scale = index, 1<<(sib>>6)
		}
		if sib&7 == 5 && mod == 0 {
			o.Base = NoRegister
			o.Displacement = r.signed(4)
		}
	} else if rm == 5 && mod == 0 {
		o.Base, o.Relative = NoRegister, true
		o.Displacement = r.signed(4)
		r.relative, r.displacement = true, o.Displacement
	}
	switch mod {
	case 1:
		o.Displacement = r.signed(1)
	case 2:
		o.Displacement = r.signed(4)
	}
	return m
}

// branch reads the displacement of a branch.
func (r *reader) branch(i *Instruction, k Kind, size int, p prefixes) bool {
	// Intel's processors ignore the prefix; AMD's do not.
	if p.operandSize && !p.wide() {
		return false
	}
	i.Kind, i.Target = k, uint64(r.signed(size))
	return true
}

func (r *reader) oneByte(i *Instruction, op byte, p prefixes) bool {
	switch {
	case op < 0x40:
		switch op & 7 {
		case 4:
			r.skip(1)
		case 5:
			r.skip(p.immediate())
		case 6, 7:
			return false
		default:
			r.modRM(p)
		}
		return true
	case op < 0x60: // push, pop
		return op >= 0x50
	case op >= 0x70 && op <= 0x7f:
		i.Condition = op & 15
		return r.branch(i, ConditionalJump, 1, p)
	case op >= 0xb0 && op <= 0xb7:
		r.skip(1)
		return true
	case op >= 0xb8 && op <= 0xbf:
		if p.wide() {
			r.skip(8)
		} else {
			r.skip(p.immediate())
		}
		return true
	case op >= 0xe0 && op <= 0xe3:
		return r.branch(i, CounterJump, 1, p)
	}
	switch op {
	case 0x63, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x8b, 0x8c, 0x8d, 0x8e,
		0xd0, 0xd1, 0xd2, 0xd3, 0xd8, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf:
		r.modRM(p)
	case 0x8f:
		return r.modRM(p).reg == 0 // otherwise AMD's XOP
	case 0xfe:
		return r.modRM(p).reg < 2
	case 0x68, 0xa9:
		r.skip(p.immediate())
	case 0x69, 0x81:
		r.modRM(p)
		r.skip(p.immediate())
	case 0x6b, 0x80, 0x83, 0xc0, 0xc1:
		r.modRM(p)
		r.skip(1)
	case 0xc6:
		m := r.modRM(p)
		r.skip(1)
		return m.reg == 0 || m.reg == 7
	case 0xc7:
		m := r.modRM(p)
		r.skip(p.immediate())
		return m.reg == 0 // 7 is xbegin, which jumps on an abort
	case 0x6a, 0xa8, 0xcd, 0xe4, 0xe5, 0xe6, 0xe7:
		r.skip(1)
	case 0x6c, 0x6d, 0x6e, 0x6f, 0xa4, 0xa5, 0xa6, 0xa7, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf,
		0x90, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f,
		0xc9, 0xcc, 0xd7, 0xec, 0xed, 0xee, 0xef, 0xf5, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd:
	case 0xa0, 0xa1, 0xa2, 0xa3:
		if p.addressSize {
			return false
		}
		r.skip(8)
	case 0xc2:
		r.skip(2)
		i.Kind = Return
	case 0xc3:
		i.Kind = Return
	case 0xc8:
		r.skip(3)
	case 0xe8:
		return r.branch(i, Call, 4, p)
	case 0xe9:
		return r.branch(i, Jump, 4, p)
	case 0xeb:
		return r.branch(i, Jump, 1, p)
	case 0xf4:
		i.Kind = Stop
	case 0xf6:
		if r.modRM(p).reg < 2 {
			r.skip(1)
		}
	case 0xf7:
		if r.modRM(p).reg < 2 {
			r.skip(p.immediate())
		}
	case 0xff:
		m := r.modRM(p)
		switch m.reg {
		case 2:
			i.Kind, i.Operand = IndirectCall, m.operand
		case 4:
			i.Kind, i.Operand = IndirectJump, m.operand
		case 3, 5, 7:
			return false
		}
		i.Operand.Segment = i.Operand.Memory && p.segment
		return m.reg != 2 && m.reg != 4 || !p.operandSize && !p.addressSize
	default:
		return false
	}
	return true
}

// twoByte decodes an instruction whose opcode begins with 0f.
func (r *reader) twoByte(i *Instruction, p prefixes) bool {
	op := r.byte()
	switch {
	case op >= 0x80 && op <= 0x8f:
		i.Condition = op & 15
		return r.branch(i, ConditionalJump, 4, p)
	case op == 0x38:
		r.byte()
		r.modRM(p)
		return true
	case op == 0x3a:
		r.byte()
		r.modRM(p)
		r.skip(1)
		return true
	case op >= 0xc8 && op <= 0xcf: // bswap
		return true
	case op >= 0x40 && op <= 0x6f, op >= 0x90 && op <= 0x9f, op >= 0xd0 && op != 0xff,
		op >= 0x10 && op <= 0x1f, op >= 0x28 && op <= 0x2f:
		r.modRM(p)
		return true
	}
	switch op {
	case 0x05, 0x06, 0x08, 0x09, 0x30, 0x31, 0x32, 0x33, 0x37, 0x77, 0xa0, 0xa1, 0xa2, 0xa8, 0xa9:
	case 0x0b: // ud2
		i.Kind = Stop
	case 0xb9, 0xff: // ud1, ud0
		i.Kind = Stop
		r.modRM(p)
	case 0x70, 0x71, 0x72, 0x73, 0xa4, 0xac, 0xba, 0xc2, 0xc4, 0xc5, 0xc6:
		r.modRM(p)
		r.skip(1)
	case 0x00, 0x01, 0x02, 0x03, 0x0d, 0x74, 0x75, 0x76, 0x79, 0x7c, 0x7d, 0x7e, 0x7f,
		0xa3, 0xa5, 0xab, 0xad, 0xae, 0xaf, 0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8,
		0xbb, 0xbc, 0xbd, 0xbe, 0xbf, 0xc0, 0xc1, 0xc3, 0xc7:
		r.modRM(p)
	default:
		return false
	}
	return true
}

// vector decodes an instruction with a VEX or EVEX prefix, whose first byte is op.
func (r *reader) vector(op byte) bool {
	table := byte(1)
	switch op {
	case 0xc5:
		r.byte()
	case 0xc4:
		table = r.byte() & 31
		r.byte()
	default:
		first, second := r.byte(), r.byte()
		r.byte()
		// Other values belong to APX.
		if first&8 != 0 || second&4 == 0 {
			return false
		}
		table = first & 7
		if table == 5 || table == 6 { // AVX512-FP16, without immediates
			table = 2
		}
	}
	if table < 1 || table > 3 {
		return false
	}
	code := r.byte()
	if table == 1 && code == 0x77 { // vzeroupper
		return op != 0x62
	}
	r.modRM(prefixes{})
	if table == 3 {
		r.skip(1)
		return true
	}
	if table == 1 {
		switch code {
		case 0x70, 0x71, 0x72, 0x73, 0xc2, 0xc4, 0xc5, 0xc6:
			r.skip(1)
		}
	}
	return true
}
