package instruction

import "encoding/binary"

// sizeARM64 is the size of all instructions, in bytes.
const sizeARM64 = 4

// DecodeARM64 decodes the arm64 instruction at the beginning of code, which is at address. It
// reports false if code is too short, or for a branch that it does not know. It does not tell
// other instructions from data.
func DecodeARM64(code []byte, address uint64) (Instruction, bool) {
	if len(code) < sizeARM64 {
		return Instruction{}, false
	}
	word := binary.LittleEndian.Uint32(code)
	i := Instruction{Size: sizeARM64}
	target := func(shift, bits uint) uint64 {
		signed := int32(word<<(32-bits-shift)) >> (32 - bits)
		return address + uint64(int64(signed)*sizeARM64)
	}
	switch {
	case word>>16 == 0: // udf
		i.Kind = Stop
	case word&0x3fa00000 == 0x08000000, word&0xbfa00000 == 0x88200000: // ldxr, stxr and others; of pairs
		i.Exclusive = exclusiveOf(word)
	case word&0xfffff0ff == 0xd503305f: // clrex
		i.Exclusive = EndExclusive
	case word&0x3b000000 == 0x18000000: // ldr of a literal, and the like
		i.Reference = target(5, 19)
	case word&0x1c000000 != 0x14000000: // not among branches, exceptions and system instructions
	case word&0xfc000000 == 0x14000000: // b
		i.Kind, i.Target = Jump, target(0, 26)
	case word&0xfc000000 == 0x94000000: // bl
		i.Kind, i.Target = Call, target(0, 26)
	case word&0xff00000e == 0x5400000e: // b.al, b.nv
		i.Kind, i.Target = Jump, target(5, 19)
	case word&0xff000000 == 0x54000000: // b.cond, bc.cond
		i.Kind, i.Condition, i.Target = ConditionalJump, uint8(word&0xf), target(5, 19)
	case word&0x7e000000 == 0x34000000: // cbz, cbnz
		i.Kind, i.Test, i.Target = ConditionalJump, testOf(word), target(5, 19)
		i.Test.Mask = 1<<32 - 1
		if word>>31 != 0 {
			i.Test.Mask = 1<<64 - 1
		}
	case word&0x7e000000 == 0x36000000: // tbz, tbnz
		i.Kind, i.Test, i.Target = ConditionalJump, testOf(word), target(5, 14)
		i.Test.Mask = 1 << (word>>31<<5 | word>>19&0x1f)
	case word == 0xd69f03e0, word == 0xd69f0bff, word == 0xd69f0fff: // eret, eretaa, eretab
		i.Kind = Return
	case word&0xfe000000 == 0xd6000000:
		if !i.branchRegister(word) {
			return Instruction{}, false
		}
	case word&0xffe0001f == 0xd4000001, word&0xff000000 == 0xd5000000: // svc; system instructions
	case word&0xff000000 == 0xd4000000: // brk, hlt and others
		i.Kind = Stop
	default:
		return Instruction{}, false
	}
	return i, true
}

// exclusiveOf returns the effect of an exclusive load or store.
func exclusiveOf(word uint32) Exclusive {
	if word>>22&1 != 0 {
		return LoadExclusive
	}
	return EndExclusive
}

// testOf returns the test of a branch, without its mask.
func testOf(word uint32) Test { return Test{Register: uint8(word & 0x1f), Nonzero: word>>24&1 != 0} }

// branchRegister decodes a branch to the address in a register, also with pointer authentication.
func (i *Instruction) branchRegister(word uint32) bool {
	i.Operand = Operand{Base: uint8(word >> 5 & 0x1f), Index: NoRegister, Scale: 1}
	signed := word&0xfffff800 == 0xd65f0800 || word&0xfefff800 == 0xd61f0800 || word&0xfefff800 == 0xd63f0800
	if !signed && word&0xfffffc1f != 0xd61f0000 && word&0xfffffc1f != 0xd63f0000 && word&0xfffffc1f != 0xd65f0000 {
		return false
	}
	i.Operand.Signed = signed
	switch word >> 21 & 3 {
	case 0:
		i.Kind = IndirectJump
	case 1:
		i.Kind = IndirectCall
	default:
		i.Kind, i.Operand = Return, Operand{}
	}
	return true
}
